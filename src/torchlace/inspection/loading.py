"""Reading back what a run has left."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torchlace.data import ImageData, Prepare, load_data
from torchlace.data.augment import PAPER_CROP, PAPER_RESIZE
from torchlace.models import Classifier
from torchlace.training import Run, RunError, TrainConfig, make_classifier

if TYPE_CHECKING:
    from torchlace.inspection.inspection import Inspection

# What tables and figures show of result.json, as numbers.
_NUMBERS = ("test_accuracy", "val_accuracy", "epochs", "best_epoch", "seconds", "parameters")
_FACTS = ("class_names", "channels", "size", "mean", "std", "data_digest")


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
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    where = pick_device(device)
    run = path if isinstance(path, Run) else Run(path)
    config, facts = read_settings(run)
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
    except (ValueError, TypeError, ImportError) as error:
        raise RunError(f"{run.path} is of a model that can't be made here: {error}") from error
    try:
        model.load_state_dict(load_file(run.weights_path))
    except (SafetensorError, RuntimeError) as error:
        raise RunError(
            f"{run.weights_path} is damaged or of another version ({type(error).__name__}); train "
            "the run anew with --overwrite"
        ) from error
    return LoadedRun(run, config, facts, model.to(where).eval(), prepare, where)


def pick_device(name: str) -> torch.device:
    """The device of this name; ``"auto"`` is CUDA where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.lower() == "gpu":
        raise RunError("there is no device 'gpu': did you mean cuda?")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise RunError("there is no CUDA device here: use --device cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):
        raise RunError(f"there is no device {name!r} here: use cpu, cuda or auto") from None


def read_settings(run: Run) -> tuple[TrainConfig, dict[str, Any]]:
    """Settings and facts of a run."""
    try:
        config, facts = run.config(), run.facts()
    except (ValueError, TypeError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"{run.path} is damaged or of another version: {reason}") from error
    missing = [name for name in _FACTS if name not in (facts or {})]
    if missing:
        raise RunError(
            f"{run.config_path} is damaged or of another version: it lacks {', '.join(missing)} "
            "under run:"
        )
    return config, facts


def read_result(run: Run) -> dict[str, Any]:
    """The final figures of a finished run."""
    if not run.finished:
        raise RunError(f"{run.path} is not finished: the command that trains it goes on with it")
    try:
        result = run.result()
    except OSError as error:
        raise RunError(f"{run.result_path} is damaged: {error}") from error
    if not isinstance(result, dict) or result.get("test_accuracy") is None:
        raise RunError(f"{run.result_path} is damaged or of another version")
    odd = [name for name in _NUMBERS if not isinstance(result.get(name), int | float | None)]
    odd += [name for name in ("versions",) if not isinstance(result.get(name, {}), dict)]
    if odd:
        raise RunError(
            f"{run.result_path} is damaged or of another version: it can't be that "
            + ", ".join(f"{name} is {result[name]!r}" for name in odd)
        )
    return result


def read_history(run: Run) -> list[dict[str, Any]]:
    """The rows of metrics.csv, one an epoch, as numbers."""
    try:
        with run.metrics_path.open(newline="") as file:
            rows = [
                {name: float(value) for name, value in row.items()} for row in csv.DictReader(file)
            ]
        return [{**row, "epoch": int(row["epoch"])} for row in rows]
    except FileNotFoundError:
        raise RunError(f"{run.path} is damaged: there is no {run.metrics_path.name}") from None
    except (ValueError, TypeError, KeyError, OverflowError, OSError, csv.Error) as error:
        raise RunError(f"{run.metrics_path} is damaged: {error}") from error


def read_data(seen: LoadedRun | Inspection, root: Path | None) -> ImageData:
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
