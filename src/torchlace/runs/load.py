"""The trained model of a run, and the images it was trained on."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchlace._torch import named_device
from torchlace.data import ImageData, Prepare, load_data
from torchlace.data.transforms import PAPER_CROP, PAPER_RESIZE
from torchlace.models import Classifier
from torchlace.runs.config import TrainConfig
from torchlace.runs.run import Run, RunError, damaged


class Described(Protocol):
    """Whatever knows the settings and the facts of a run."""

    @property
    def config(self) -> TrainConfig:
        """Its settings."""

    @property
    def facts(self) -> dict[str, Any]:
        """What it found out at its start."""


@dataclass(frozen=True)
class LoadedRun:
    """A run with its model.

    Attributes:
        run: its files.
        config: its settings.
        facts: what it found out at its start.
        model: the trained model in evaluation mode, on the device.
        prepare: the transform of evaluation.
        device: where the model is.
    """

    run: Run
    config: TrainConfig
    facts: dict[str, Any]
    model: Classifier
    prepare: Prepare
    device: torch.device


def load_run(path: Path | str | Run, device: str = "auto") -> LoadedRun:
    """The trained model of a run and all that is needed to use it; the run may be unfinished.

    Raises:
        RunError: where there is no run, no weights yet, or what is there can't be used.
    """
    where = named_device(device)
    run = path if isinstance(path, Run) else Run(path)
    config, facts = run.settings()
    run.require_imports()
    if not run.weights_path.exists():
        raise RunError(f"{run.path} has no weights yet: train it to its first epoch")
    try:
        model = make_classifier(
            dataclasses.replace(config, pretrained=False),
            facts["channels"],
            max(facts["size"]),
            len(facts["class_names"]),
        )
        sizes = {"resize": PAPER_RESIZE, "crop": PAPER_CROP} if config.protocol == "paper" else {}
        prepare = Prepare(facts["mean"], facts["std"], **sizes)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise RunError(f"{run.path} is of a model that can't be made here: {error}") from error
    if config.precision == "64-true":
        model.double()
    load_weights(run, model)
    return LoadedRun(run, config, facts, model.to(where).eval(), prepare, where)


def make_classifier(config: TrainConfig, channels: int, size: int, classes: int) -> Classifier:
    """The model of a configuration, for images of this kind."""
    stem = config.stem
    if stem == "auto":
        stem = "small" if config.protocol == "native" and size <= 64 else "standard"
    return Classifier(
        config.backbone_name,
        config.head,
        classes,
        head_options=config.head_options,
        channels=3 if config.protocol == "paper" else channels,
        stem=stem,
        pretrained=config.pretrained,
        embedding=config.embedding,
        background_norm=config.background_norm,
    )


def load_weights(
    run: Run,
    model: nn.Module,
    spread: Callable[[dict[str, Tensor], nn.Module], dict[str, Any]] = lambda state, model: state,
) -> None:
    """Read best.safetensors into a model.

    Args:
        run: the run.
        model: of the kind that the run has trained.
        spread: what turns the weights into those of a model that is spread over devices.
    """
    state = run.weights()
    with damaged(run.weights_path):
        try:
            model.load_state_dict(spread(state, model))
        except RuntimeError as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def read_data(seen: Described, root: Path | None) -> ImageData:
    """The images that a run was trained and tested on, or what has become of them."""
    config = seen.config
    place = root or (Path(config.root) if config.root else None)
    # Files that differ in size get the one that the run has recorded: it may have been made when
    # all had that size, or by another version.
    return load_data(
        config.data,
        place,
        size=config.image_size,
        mixed_size=tuple(seen.facts["size"]),
        skip_bad=config.skip_bad,
    )


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
