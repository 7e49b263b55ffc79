"""``torchlace train``, with an option for each setting, and what says what it takes."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from torchlace._text import is_text
from torchlace._yaml import read_yaml_text
from torchlace.cli.common import (
    BACKBONES,
    DATA,
    HEADS,
    IMPORT,
    Imports,
    Json,
    among,
    plain_errors,
    print_json,
    print_table,
    say,
    say_lines,
)
from torchlace.cli.progress import reporting
from torchlace.runs.config import TrainConfig
from torchlace.runs.files import CONFIG
from torchlace.runs.recipes import NAMES, read_recipe, with_recipe

RECIPE = typer.Option(
    help=f"{', '.join(NAMES)} or a YAML file of settings; options given here win.",
    autocompletion=among(*NAMES),
)
_COMPLETED = {"data": DATA, "head": HEADS, "backbone": BACKBONES}
# Settings of several values: each time that the option is given adds one.
_REPEATED = {
    "head_options": (
        "--head-option",
        "NAME=VALUE (YAML), an option of the head; repeatable. Others that --config has stay, "
        "unless --head names another head.",
    ),
    "loggers": ("--log", "wandb or mlflow, beyond CSV and TensorBoard; repeatable."),
    "imports": ("--import", IMPORT),
}


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, in the place of its keywords, an option for each setting of a run."""
    hints = get_type_hints(TrainConfig)
    own = inspect.signature(command, eval_str=True).parameters.values()
    options = [each for each in own if each.kind is not each.VAR_KEYWORD]
    for each in dataclasses.fields(TrainConfig):
        options.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=_annotation(each, hints[each.name]),
            )
        )
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return command


def _annotation(setting: dataclasses.Field[Any], kind: Any) -> Any:
    """What typer makes an option of."""
    name, rules, default = setting.name, setting.metadata, setting.default
    words = _COMPLETED.get(name, rules["choices"])
    how: dict[str, Any] = {"rich_help_panel": rules["group"]}
    if words:
        how["autocompletion"] = among(*words)
    if name in _REPEATED:
        flag, says = _REPEATED[name]
        return Annotated[list[str] | None, typer.Option(flag, help=says, **how)]
    if isinstance(default, bool):
        shown = ("" if default else "no-") + name.replace("_", "-")
    else:
        shown = "none" if default is None else f"{default:g}" if kind is float else str(default)
    option = typer.Option(help=rules["says"], show_default=rules["shown"] or shown, **how)
    return Annotated[kind | None, option]


@_with_settings
def train(
    *,
    path: Annotated[
        Path | None,
        typer.Option("--run", help="Run directory.", show_default="runs/DATA-HEAD-SEED"),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; options given here win.")
    ] = None,
    recipe: Annotated[str | None, RECIPE] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Train a finished run anew.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the result.")] = False,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Train a classifier; the same command again resumes an unfinished run."""
    given = {name: value for name, value in settings.items() if value is not None}
    with plain_errors():
        from torchlace.runs.readers import read_yaml
        from torchlace.training import InterruptedRun
        from torchlace.training import train as start
        from torchlace.training.choices import OPEN

        if "head_options" in given:
            given["head_options"] = dict(map(_head_option, given["head_options"]))
        if config and recipe:
            raise ValueError(
                "--config and --recipe both bring settings: give one of them, or write all that is "
                "to hold into one file"
            )
        asked = {*given}
        given = with_recipe(recipe, given) if recipe else given
        chosen = TrainConfig.from_yaml(config, **given) if config else TrainConfig.from_dict(given)
        settled = {*given, *(read_yaml(config)[0] if config else ())}
        # A recipe's batches are for many images: fewer images get smaller ones.
        adapted = {"batch_size", "lr"} - asked if recipe in NAMES else set()
        choose = [name for name in OPEN if name not in settled - adapted]
        run = path or Path("runs") / _name(chosen)
        if not is_text(str(run)):  # TensorBoard could not write there
            raise ValueError(f"--run {run}: this name is not UTF-8; give another")
        try:
            with reporting(epochs=chosen.epochs, quiet=quiet or as_json) as reporter:
                result = start(chosen, run, reporter=reporter, overwrite=overwrite, choose=choose)
        except InterruptedRun as stop:
            if int(os.environ.get("LOCAL_RANK", "0")) == 0:
                say(str(stop), err=True)
            raise typer.Exit(130) from None
    if not result:  # another rank than the first
        return
    if as_json:
        print_json({"run": str(run), **result})
    else:
        say(
            f"{run}: test accuracy {result['test_accuracy']:.2f} %, validation "
            f"{result['val_accuracy']:.2f} % (epoch {result['best_epoch']} of {result['epochs']}), "
            f"{result['seconds']:.1f} s"
        )


def heads() -> None:
    """List the heads and their defaults."""
    from torchlace import heads as registry

    rows = []
    for name in registry.names():
        head = registry.create(name, 512, 10)
        text = registry.summary(name)
        rows.append([name, text, head.extra_repr().removeprefix("512, 10").lstrip(", ")])
    print_table("heads", ["name", "what it is", "defaults, for 512 features and 10 classes"], rows)


def config(
    file: Annotated[
        Path | None, typer.Argument(help="A YAML file or run directory to show in full.")
    ] = None,
    recipe: Annotated[str | None, RECIPE] = None,
    imports: Imports = None,
) -> None:
    """Print all settings of a training as YAML, ready for train --config."""
    with plain_errors():
        import yaml

        from torchlace.runs.readers import read_yaml

        if file is not None and file.is_dir():
            file = file / CONFIG
        values = read_recipe(recipe) if recipe else {}
        values |= read_yaml(file)[0] if file else {}
        settings = TrainConfig.from_dict(values, str(file))
        settings = dataclasses.replace(settings, imports=(*settings.imports, *(imports or ())))
        for name, value in settings.as_dict().items():
            say_lines(yaml.safe_dump({name: value}).strip())


def _name(settings: TrainConfig) -> str:
    data = Path(settings.data)
    name = data.resolve().name if data.is_dir() else data.stem
    return f"{name}-{settings.head}-{settings.seed}"


def _head_option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--head-option takes NAME=VALUE, got {text!r}")
    return name, read_yaml_text(value, f"--head-option {text!r}")
