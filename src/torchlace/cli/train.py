"""``torchlace train``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from torchlace._choices import CHOICES
from torchlace._text import is_text
from torchlace._yaml import read_yaml_text
from torchlace.cli.bars import reporter as make_reporter
from torchlace.cli.common import plain_errors, print_json, say
from torchlace.cli.completion import BACKBONES, DATA, HEADS, among

Str = str | None
Int = int | None
Float = float | None


def train(
    data: Annotated[
        Str,
        typer.Option(
            help="Data set, folder of class folders, CSV or .npz.",
            show_default="digits",
            autocompletion=among(*DATA),
        ),
    ] = None,
    head: Annotated[
        Str,
        typer.Option(
            help="See torchlace heads.", show_default="lace", autocompletion=among(*HEADS)
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Run directory.", show_default="runs/DATA-HEAD-SEED")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of settings; options given here win.")
    ] = None,
    seed: Annotated[Int, typer.Option(help="Seed of everything random.", show_default="0")] = None,
    epochs: Annotated[Int, typer.Option(help="At most so many.", show_default="300")] = None,
    patience: Annotated[
        Int, typer.Option(help="Epochs without a better validation loss.", show_default="10")
    ] = None,
    batch_size: Annotated[Int, typer.Option(help="Over all devices.", show_default="256")] = None,
    backbone: Annotated[
        Str,
        typer.Option(
            help="small-cnn, one of torchvision's, or timm/NAME.",
            show_default="auto",
            autocompletion=among(*BACKBONES),
        ),
    ] = None,
    stem: Annotated[
        Str,
        typer.Option(
            help="auto, small or standard.",
            show_default="auto",
            autocompletion=among(*CHOICES["stem"]),
        ),
    ] = None,
    pretrained: Annotated[
        bool | None,
        typer.Option(help="Start from the library's weights.", show_default="no-pretrained"),
    ] = None,
    embedding: Annotated[
        Int, typer.Option(help="Width of a layer behind the backbone.", show_default="none")
    ] = None,
    background_norm: Annotated[
        Str,
        typer.Option(
            help="A normalisation layer that a BackgroundNorm takes the place of.",
            show_default="none",
        ),
    ] = None,
    head_option: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE (YAML), an option of the head; repeatable. Others that --config has "
            "stay, unless --head names another head."
        ),
    ] = None,
    protocol: Annotated[
        Str,
        typer.Option(
            help="native or paper (224 px).",
            show_default="native",
            autocompletion=among(*CHOICES["protocol"]),
        ),
    ] = None,
    image_size: Annotated[
        Int,
        typer.Option(
            help="Side that images are brought to.",
            show_default="their own; 224 (paper: 256) where they differ or exceed 512",
        ),
    ] = None,
    mirror: Annotated[
        bool | None,
        typer.Option(help="Mirror half of the images.", show_default="all but known digits"),
    ] = None,
    optimizer: Annotated[
        Str,
        typer.Option(
            help="adam, adamw or sgd.",
            show_default="adam",
            autocompletion=among(*CHOICES["optimizer"]),
        ),
    ] = None,
    lr: Annotated[Float, typer.Option(help="Learning rate.", show_default="0.001")] = None,
    weight_decay: Annotated[Float, typer.Option(help="Weight decay.", show_default="0")] = None,
    schedule: Annotated[
        Str,
        typer.Option(
            help="constant, cosine or one-cycle.",
            show_default="constant",
            autocompletion=among(*CHOICES["schedule"]),
        ),
    ] = None,
    validation: Annotated[
        Float, typer.Option(help="Share of training images held out.", show_default="0.1")
    ] = None,
    images: Annotated[
        Int, typer.Option(help="Train on so many of the others only.", show_default="none")
    ] = None,
    clip: Annotated[
        Float, typer.Option(help="Largest norm of the gradient.", show_default="none")
    ] = None,
    label_smoothing: Annotated[
        Float, typer.Option(help="Label smoothing.", show_default="0")
    ] = None,
    class_weights: Annotated[
        Str,
        typer.Option(
            help="none or balanced.",
            show_default="none",
            autocompletion=among(*CHOICES["class_weights"]),
        ),
    ] = None,
    ema: Annotated[
        Float, typer.Option(help="Decay of an average of the weights.", show_default="none")
    ] = None,
    norm_batches: Annotated[
        Int,
        typer.Option(
            help="Batches that batch normalisation takes its statistics from before validation.",
            show_default="0: running averages",
        ),
    ] = None,
    root: Annotated[
        Str,
        typer.Option(help="Where packs lie.", show_default="$TORCHLACE_DATA or ~/.cache/torchlace"),
    ] = None,
    skip_bad: Annotated[
        bool | None, typer.Option(help="Leave unreadable images out.", show_default="no-skip-bad")
    ] = None,
    device: Annotated[
        Str,
        typer.Option(
            help="cpu, cuda, mps or auto.",
            show_default="auto",
            autocompletion=among(*CHOICES["device"]),
        ),
    ] = None,
    devices: Annotated[Int, typer.Option(help="Devices on each machine.", show_default="1")] = None,
    nodes: Annotated[Int, typer.Option(help="Machines.", show_default="1")] = None,
    strategy: Annotated[Str, typer.Option(help="auto, ddp, fsdp, ...", show_default="auto")] = None,
    precision: Annotated[
        Str, typer.Option(help="32-true, bf16-mixed, ...", show_default="auto: bf16-mixed on CUDA")
    ] = None,
    graph: Annotated[
        bool | None, typer.Option(help="Replay the step as a CUDA graph.", show_default="graph")
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option(help="Compile the backbone by torch.compile.", show_default="no-compile"),
    ] = None,
    workers: Annotated[
        Int, typer.Option(help="Processes that decode images.", show_default="2")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="wandb or mlflow; repeatable.", autocompletion=among("wandb", "mlflow")),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Train a finished run anew.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a classifier; the same command again resumes an unfinished run."""
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("run", "config", "head_option", "log", "overwrite", "quiet", "as_json")
        and value is not None
    }
    with plain_errors():
        from torchlace.training import InterruptedRun, TrainConfig
        from torchlace.training import train as start

        if head_option:
            given["head_options"] = dict(_option(text) for text in head_option)
        if log:
            given["loggers"] = tuple(log)
        settings = (
            TrainConfig.from_yaml(config, **given) if config else TrainConfig.from_dict(given)
        )
        path = run or Path("runs") / _name(settings)
        if not is_text(str(path)):  # TensorBoard could not write there
            raise ValueError(f"--run {path}: this name is not UTF-8; give another")
        reporter = make_reporter(settings.epochs, quiet or as_json)
        try:
            result = start(settings, path, reporter=reporter, overwrite=overwrite)
        except InterruptedRun as stop:
            reporter.close()  # first, so that no bar is left where this is said
            if int(os.environ.get("LOCAL_RANK", "0")) == 0:
                say(str(stop), err=True)
            raise typer.Exit(130) from None
        finally:
            reporter.close()
    if not result:  # another rank than the first
        return
    if as_json:
        print_json({"run": str(path), **result})
    else:
        say(
            f"{path}: test accuracy {result['test_accuracy']:.2f} %, validation "
            f"{result['val_accuracy']:.2f} % (epoch {result['best_epoch']} of {result['epochs']}), "
            f"{result['seconds']:.1f} s"
        )


def _name(settings: Any) -> str:
    data = Path(settings.data)
    name = data.resolve().name if data.is_dir() else data.stem
    return f"{name}-{settings.head}-{settings.seed}"


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--head-option takes NAME=VALUE, got {text!r}")
    return name, read_yaml_text(value, f"--head-option {text!r}")
