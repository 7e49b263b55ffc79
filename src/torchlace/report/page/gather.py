"""The runs of a report: examined one after the other, those that can't be with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torchlace.evaluation.embedding import Method
from torchlace.runs import RunError, TrainConfig
from torchlace.runs.files import METRICS
from torchlace.runs.readers import best_epoch

if TYPE_CHECKING:
    from torch import Tensor

    from torchlace.data import Images
    from torchlace.inspection import Embedded, Inspection, Watcher

Space = Literal["raw", "whitened"]
COLUMNS = ("epoch", "train_loss", "val_loss", "val_accuracy")


@dataclass(frozen=True, eq=False)
class Shown:
    """A run that was examined.

    Attributes:
        name: what the page calls it.
        inspection: all that is known of it.
        spheres: its test images embedded on the sphere, raw and, where there is one, whitened;
            empty where they can't be.
    """

    name: str
    inspection: Inspection
    spheres: dict[str, Embedded]

    @property
    def config(self) -> TrainConfig:
        """Its settings."""
        return self.inspection.config

    @property
    def chosen(self) -> int:
        """The epoch whose weights were kept."""
        return int(self.inspection.result.get("best_epoch") or best_epoch(self.inspection.history))

    @property
    def accuracy(self) -> float:
        """Of the test images, in percent."""
        return float(self.inspection.scores["accuracy"])


@dataclass(frozen=True)
class Failed:
    """A run that can't be shown.

    Attributes:
        name: what the page calls it.
        reason: why, in a sentence.
    """

    name: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """Runs tested on the same images.

    Attributes:
        data: what the data are called.
        runs: the runs.
        images: the test images; None where they are no longer to be had.
    """

    data: str
    runs: list[Shown]
    images: Images | None

    @property
    def class_names(self) -> list[str]:
        """A name for each class."""
        return self.runs[0].inspection.class_names

    @property
    def labels(self) -> Tensor:
        """Class of every test image."""
        return self.runs[0].inspection.labels

    @property
    def sample(self) -> list[int]:
        """The test images on the spheres, the same for every run."""
        drawn = [run.spheres["raw"].indices.tolist() for run in self.runs if run.spheres]
        return drawn[0] if drawn else []


@dataclass(frozen=True)
class Examine:
    """How runs are examined.

    Attributes:
        samples: test images on the spheres, at most.
        method: how they are laid out.
        device: where features are computed.
        root: where packs of data lie, if not where a run's settings say.
    """

    samples: int = 5000
    method: Method = "tsne"
    device: str = "auto"
    root: Path | None = None


def gather(
    paths: Iterable[Path | str], how: Examine, watcher: Watcher
) -> tuple[list[Collection], list[Failed]]:
    """Examine runs and sort them by what they were tested on, best first."""
    shown: list[Shown] = []
    failed: list[Failed] = []
    for name, path in _names(paths).items():
        watcher.message(f"{name}: examining")
        try:
            shown.append(_examine(name, path, how, watcher))
        except (RunError, ValueError, OSError) as error:
            watcher.message(f"{name}: not shown: {error}")
            failed.append(Failed(name, str(error)))
    return _collections(shown, how.root, watcher), failed


def _examine(name: str, path: Path, how: Examine, watcher: Watcher) -> Shown:
    from torchlace.inspection import embedding, inspect

    found = inspect(path, device=how.device, root=how.root, reporter=watcher)
    if not found.history or not found.history[0].keys() >= set(COLUMNS):
        wanted = ", ".join(COLUMNS)
        raise RunError(f"{path} is damaged or of another version: {METRICS} must hold {wanted}")
    spaces: tuple[Space, ...] = ("raw",) if found.whitened is None else ("raw", "whitened")
    spheres = {}
    try:
        for space in spaces:
            watcher.message(f"{name}: laying out {space} features by {how.method}")
            spheres[str(space)] = embedding(
                found, space, how.method, dim=3, samples=how.samples, reporter=watcher
            )
    except ValueError as error:  # features of fewer than three dimensions, or not finite
        watcher.message(f"note: no sphere of {name}: {error}")
        spheres = {}
    return Shown(name, found, spheres)


def _names(paths: Iterable[Path | str]) -> dict[str, Path]:
    """As little of each path as tells them apart; a path given twice counts once."""
    # Not by resolve, which raises where links lead in a circle.
    unique = {Path(os.path.realpath(path)): Path(path) for path in paths}
    depth = 1
    while True:
        names = {"/".join(full.parts[-depth:]): path for full, path in unique.items()}
        if len(names) == len(unique):
            return dict(zip(_without_common(list(names)), names.values(), strict=True))
        depth += 1


def _without_common(names: list[str]) -> list[str]:
    """Names without the words that all of them begin or end with: a grid's names are long."""
    words = [name.split("-") for name in names]
    most = min(len(each) for each in words) - 1 if len(names) > 1 else 0
    end = next((n for n in range(most) if len({each[-1 - n] for each in words}) > 1), most)
    most -= end
    start = next((n for n in range(most) if len({each[n] for each in words}) > 1), most)
    if any(each[start].removeprefix("s").isdigit() for each in words):  # a seed says nothing
        start = max(start - 1, 0)
    return ["-".join(each[start : len(each) - end]) for each in words]


def _collections(shown: list[Shown], root: Path | None, watcher: Watcher) -> list[Collection]:
    together: dict[Any, list[Shown]] = {}
    for run in shown:
        found = run.inspection
        key = (found.key["data"], *found.class_names)
        together.setdefault(key, []).append(run)
    return [
        Collection(
            Path(runs[0].config.data).stem,
            sorted(runs, key=lambda run: -run.accuracy),
            _images(runs[0], root, watcher),
        )
        for runs in together.values()
    ]


def _images(run: Shown, root: Path | None, watcher: Watcher) -> Images | None:
    from torchlace.data import DataError
    from torchlace.runs import read_data

    try:
        data = read_data(run.inspection, root)
    except (DataError, OSError) as error:
        watcher.message(f"note: no pictures of {run.config.data}: {error}")
        return None
    if not data.test.labels.equal(run.inspection.labels):
        watcher.message(f"note: no pictures of {run.config.data}: its test images have changed")
        return None
    return data.test
