"""Trained classifiers as folders for the Hugging Face Hub: weights, settings and a model card.

A folder holds ``model.safetensors``, ``config.json`` and ``README.md``. Loading one reads numbers
and names: nothing in it is executed, and there are no pickles.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any

import torchlace
from torchlace import heads
from torchlace._files import write_whole
from torchlace._registry import required
from torchlace.data import Prepare
from torchlace.models import Classifier

__all__ = ["Pretrained", "from_pretrained", "push_to_hub", "save_pretrained"]

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
_LIBRARY = "torchlace"
# Where a model computes is for whoever loads it; in what precision is said by its weights.
_ELSEWHERE = {"device", "dtype"}
_PREPARED = ("mean", "std", "resize", "crop")
_NEEDED = "the Hugging Face Hub needs huggingface_hub: pip install 'torchlace[hub]'"


@dataclass(frozen=True)
class Pretrained:
    """A trained classifier with what its users have to know.

    Attributes:
        model: the classifier.
        class_names: a name for each class.
        prepare: the transform from uint8 images to what the model takes.
        size: height and width that images are brought to before.
        about: what the model card says of it, in Markdown.
        figures: figures of merit for the card's table of results, by the names of measures.
    """

    model: Classifier
    class_names: tuple[str, ...] = ()
    prepare: Prepare | None = None
    size: tuple[int, int] | None = None
    about: str = ""
    figures: Mapping[str, Any] | None = None


Source = Classifier | Pretrained | str | Path


def save_pretrained(
    source: Source, folder: Path | str, *, name: str | None = None, license: str | None = None
) -> Path:
    """Write a trained classifier as a folder that the Hugging Face Hub understands.

    Args:
        source: a run's directory, with everything that is known of it; or a classifier, alone or
            in a :class:`Pretrained` with the names of its classes and its preparation.
        folder: a new folder, or one of an earlier save, whose files are replaced.
        name: what the model is called; by default as the folder.
        license: an identifier such as ``"mit"`` for the model card, which names none by default.

    Example:
        >>> model = Classifier("small-cnn", "lace", num_classes=2, channels=1)
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = save_pretrained(Pretrained(model, ("cat", "dog")), f"{place}/pets")
        ...     from_pretrained(folder).class_names
        ('cat', 'dog')
    """
    from safetensors.torch import save

    folder = Path(folder)
    given = _given(source)
    config = _config(given)
    _check_free(folder)
    card = _model_card(given, config["model"], name or folder.resolve().name, license)
    # Clones: safetensors refuses tensors that share memory.
    state = {key: value.detach().cpu().clone() for key, value in given.model.state_dict().items()}
    files = {WEIGHTS: save(state), CARD: card.encode()}
    files[CONFIG] = f"{json.dumps(config, indent=2, ensure_ascii=False)}\n".encode()
    for file, content in files.items():
        write_whole(folder / file, methodcaller("write", content), folders=True)
    return folder


def from_pretrained(name: str | Path, **download: Any) -> Pretrained:
    """Load what :func:`save_pretrained` or :func:`push_to_hub` wrote, in evaluation mode.

    Args:
        name: a folder, or the name of a model on the Hugging Face Hub, such as ``"me/flowers"``.
        **download: ``revision``, ``token``, ``cache_dir``, ``local_files_only`` and others of
            ``huggingface_hub.snapshot_download``.
    """
    folder = Path(name)
    if not folder.is_dir():
        if isinstance(name, Path) or name.count("/") != 1 or name.startswith((".", "/")):
            raise FileNotFoundError(f"there is no folder {name}")
        hub = required("huggingface_hub", _NEEDED)
        folder = Path(hub.snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **download))
    from safetensors import SafetensorError

    try:
        return _loaded(folder)
    except KeyError as error:
        reason = f"its {CONFIG} lacks {error}"
    except SafetensorError as error:
        reason = f"its {WEIGHTS} can't be read ({error})"
    except (OSError, ValueError, TypeError, ImportError, RuntimeError, RecursionError) as error:
        reason = " ".join(str(error).split("\n")[:2])
    raise ValueError(
        f"{name} can't be loaded as a classifier of torchlace: {reason}. Heads and backbones of "
        "one's own are registered first, as they were where it was saved"
    )


def push_to_hub(
    source: Source,
    repo: str,
    *,
    private: bool | None = None,
    token: str | None = None,
    license: str | None = None,
) -> str:
    """Upload a run or a classifier to the Hugging Face Hub, with its model card; the address.

    Args:
        source: as for :func:`save_pretrained`.
        repo: name of the model there, such as ``"me/flowers"``; it is created if it is new.
        private: whether a new one is private; by default as the account has it.
        token: of the account; by default the one of ``hf auth login``.
        license: as for :func:`save_pretrained`.
    """
    api = required("huggingface_hub", _NEEDED).HfApi(token=token)
    with tempfile.TemporaryDirectory() as place:
        folder = save_pretrained(source, Path(place, "model"), name=repo, license=license)
        repo = api.create_repo(repo, private=private, exist_ok=True).repo_id
        message = f"A classifier of torchlace {torchlace.__version__}"
        done = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
    return str(done.commit_url)


def _check_free(folder: Path) -> None:
    """Raise where files would be replaced that no earlier save has written."""
    with suppress(OSError, ValueError):
        _read_config(folder)
        return
    found = folder.iterdir() if folder.is_dir() else ()
    others = sorted(each.name for each in found if not each.name.startswith("."))
    if others:
        raise ValueError(f"{folder} holds other files ({others[0]}): name a new folder")


def _read_config(folder: Path) -> dict[str, Any]:
    text = (folder / CONFIG).read_text(encoding="utf-8")
    config = None
    with suppress(ValueError):
        config = json.loads(text)
    if not isinstance(config, dict) or config.get("library") != _LIBRARY:
        raise ValueError(f"its {CONFIG} is not one of torchlace")
    return config


def _given(source: Source) -> Pretrained:
    """A classifier with what is known of it: of a run's directory, all."""
    if isinstance(source, Pretrained):
        return source
    if isinstance(source, Classifier):
        return Pretrained(source)
    import yaml

    from torchlace.evaluation.inspection import kept_scores
    from torchlace.runs import load_run
    from torchlace.runs.config import EXECUTION

    loaded = load_run(source, "cpu")
    result = loaded.run.result()  # an unfinished run is not calibrated yet
    # Paths say more of the machine than of the data.
    data = _plain(Path(loaded.config.data).stem)
    kept = loaded.config.as_dict().items()
    settings = {key: value for key, value in kept if key not in {*EXECUTION, "data"}}
    about = (
        f"Trained on `{data}` for {result['epochs']} epochs, with these settings:\n\n"
        f"```yaml\n{yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)}```\n"
    )
    height, width = loaded.facts["size"]
    names = tuple(loaded.facts["class_names"])
    figures = {**result, **kept_scores(loaded.run)}
    return Pretrained(loaded.model, names, loaded.prepare, (height, width), about, figures)


def _config(given: Pretrained) -> dict[str, Any]:
    """What config.json says: all that is needed to make the classifier again."""
    made, names = given.model.made_from, list(given.class_names)
    if made is None:
        raise ValueError(
            "the backbone or the head of this classifier is an object, which a file can't name: "
            "register its class, tl.models.register or tl.heads.register, and give its name, "
            'Classifier("mine", "lace", num_classes=10)'
        )
    if names and len(names) != given.model.num_classes:
        raise ValueError(f"{len(names)} class_names were given for {given.model.num_classes}")
    options = {k: v for k, v in made["head_options"].items() if k not in _ELSEWHERE}
    config: dict[str, Any] = {
        "library": _LIBRARY,
        "version": torchlace.__version__,
        "model": {**made, "head_options": options, "pretrained": False},
        "class_names": names,
        "size": given.size,
        "preparation": given.prepare and {name: getattr(given.prepare, name) for name in _PREPARED},
    }
    try:
        json.dumps(config)
    except TypeError as error:
        raise ValueError(
            f"the options of this classifier can't be written to a file ({error}): give numbers "
            "and names, such as background='total' with background_options"
        ) from error
    return config


def _loaded(folder: Path) -> Pretrained:
    from safetensors.torch import load_file

    config = _read_config(folder)
    made, names = config["model"], config["class_names"]
    state = load_file(folder / WEIGHTS)
    # Before anything is made of the size that the settings claim.
    if not {made["num_classes"], len(names) or made["num_classes"]} == {len(state["head.weight"])}:
        raise ValueError(
            f"it has {made['num_classes']} classes, {len(names)} names and weights for "
            f"{len(state['head.weight'])}"
        )
    model = Classifier(**{**made, "pretrained": False})
    model.load_state_dict(state, assign=True)  # in the precision in which they were saved
    prepare = None if config["preparation"] is None else Prepare(**config["preparation"])
    size = None if config["size"] is None else (int(config["size"][0]), int(config["size"][1]))
    return Pretrained(model.eval(), tuple(map(str, names)), prepare, size)


def _model_card(given: Pretrained, made: Mapping[str, Any], name: str, license: str | None) -> str:
    """The card of a classifier that is ``made`` as its config.json says."""
    task = "image-classification"
    about = {"library_name": _LIBRARY, "pipeline_tag": task, "tags": [_LIBRARY, task, made["head"]]}
    about |= {"license": license} if license is not None else {}
    # A JSON value is a YAML value too.
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in about.items())
    images = "prepared images" if given.prepare is None else "uint8 images"
    if given.size is not None:
        images += f" of {given.size[0]} × {given.size[1]} pixels"
    # Grey images are repeated to as many channels as the mean has.
    channels = made.get("channels", 3)
    several = "" if given.prepare is None or channels == 1 else "1 or "
    prepared = "images" if given.prepare is None else "loaded.prepare(images)"
    parts = [
        f"---\n{front}---",
        f"# {_plain(name)}",
        f"An image classifier: the network `{made['backbone']}` with the head `{made['head']}` of "
        f"torchlace. {heads.summary(made['head'])}\nIt tells {made['num_classes']} classes apart; "
        f"`config.json` has their names and the options of network and head.",
        "## Use",
        "```python\nimport torchlace as tl\n\n"
        f'loaded = tl.hub.from_pretrained("{_plain(name)}")\n'
        f"probabilities = loaded.model.probabilities({prepared})\n```",
        f"It takes {images}, (N, {several}{channels}, height, width).",
    ]
    if given.figures:
        parts += ["## Results", "On the test images:", _results(given.figures, made)]
    if given.about:
        parts += ["## Training", given.about.rstrip()]
    return "\n\n".join(parts) + "\n"


def _results(figures: Mapping[str, Any], made: Mapping[str, Any]) -> str:
    """The measures that runs are compared by, as a table."""
    from torchlace.evaluation.measures import TRAINING, figure, measures

    lines = ["| measure | value | |", "| --- | ---: | --- |"]
    for each in (*measures(), *TRAINING):
        known = (figure(figures, name) for name in (each.name, each.line))
        value = each.shown(next((found for found in known if found is not None), None))
        # Of five classes every one is among the first five.
        said = each.short and (each.name != "top5_accuracy" or made["num_classes"] > 5)
        if value is not None and said:
            lines.append(f"| {each.heading} | {value:,.{each.digits}f} | {each.about} |")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A name without what Markdown would act upon."""
    return re.sub(r"[^\w /.+-]", "", text)
