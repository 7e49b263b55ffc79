"""The runs of a report: examined, sorted by their data, and grouped by their settings."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from torch import Tensor

from torchlace import evaluation
from torchlace._reporter import Reporter
from torchlace.data import DataError, Images
from torchlace.evaluation import Inspection, Picture
from torchlace.evaluation.pictures import Method
from torchlace.experiments.tables import deviation
from torchlace.runs import RunError, TrainConfig, read_data
from torchlace.runs.config import EXECUTION
from torchlace.runs.files import METRICS
from torchlace.runs.readers import best_epoch

COLUMNS = ("epoch", "train_loss", "val_loss", "val_accuracy")
# A list of settings that is longer is no name of a run that has one already.
_LONGEST = 60


@dataclass(frozen=True, eq=False)
class Shown:
    """A run that was examined, by the name that the page gives it.

    Its test images lie on a sphere for each space, raw and, if it has one, whitened; there is none
    if they can't be laid out.
    """

    name: str
    inspection: Inspection
    spheres: dict[str, Picture]

    @property
    def config(self) -> TrainConfig:
        """The run's settings."""
        return self.inspection.config

    @property
    def chosen(self) -> int:
        """The epoch whose weights were kept."""
        return int(self.inspection.result.get("best_epoch") or best_epoch(self.inspection.history))

    @property
    def accuracy(self) -> float:
        """Test accuracy in percent."""
        return float(self.inspection.scores["accuracy"])


@dataclass(frozen=True)
class Failed:
    """A run that can't be shown: its name on the page, and the reason in a sentence."""

    name: str
    reason: str


@dataclass(frozen=True)
class Collection:
    """Runs tested on the same images, the most accurate first; these are None if they are gone."""

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
class Spread:
    """The values of one score over several runs."""

    values: list[float]

    @property
    def mean(self) -> float:
        """The mean of the values."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation; None of a single value."""
        return deviation(self.values)

    def text(self, digits: int = 2) -> str:
        """Mean ± deviation, without a space where a line could break."""
        mean = f"{self.mean:.{digits}f}"
        if self.deviation is None:
            return mean
        return f"{mean}\u00a0±\u00a0{self.deviation:.{digits}f}"


@dataclass(frozen=True)
class Group:
    """Runs that differ by their seed only, and a label that sets them apart from other groups."""

    label: str
    runs: list[Shown]

    @property
    def accuracy(self) -> Spread:
        """Test accuracy of its runs, in percent."""
        return Spread([run.accuracy for run in self.runs])


def gather(
    paths: Iterable[Path | str],
    reporter: Reporter,
    *,
    samples: int,
    method: Method,
    device: str,
    root: Path | None,
) -> tuple[list[Collection], list[Failed]]:
    """Examine runs and sort them by what they were tested on; see ``write_report``."""
    shown: list[Shown] = []
    failed: list[Failed] = []
    for name, path in short_names(paths).items():
        reporter.message(f"{name}: examining")
        try:
            found = evaluation.inspect(path, device=device, root=root, reporter=reporter)
            if not found.history or not found.history[0].keys() >= set(COLUMNS):
                wanted = ", ".join(COLUMNS)
                raise RunError(
                    f"{path} is damaged or of another version: {METRICS} must hold {wanted}"
                )
            shown.append(Shown(name, found, _spheres(name, found, method, samples, reporter)))
        except (RunError, ValueError, OSError) as error:
            reporter.message(f"{name}: not shown: {error}")
            failed.append(Failed(name, str(error)))
    return _collections(shown, root, reporter), failed


def group_runs(runs: Sequence[Shown]) -> list[Group]:
    """Groups of runs of the same settings, the highest mean accuracy first."""
    together: dict[str, list[Shown]] = {}
    for run in runs:
        key = json.dumps(_essence(run.config), sort_keys=True, default=str)
        together.setdefault(key, []).append(run)
    settings = _labels([runs[0].config for runs in together.values()])
    labels = [
        runs[0].name if len(label) > _LONGEST and len(runs) == 1 else label
        for label, runs in zip(settings, together.values(), strict=True)
    ]
    groups = [Group(*each) for each in zip(labels, together.values(), strict=True)]
    return sorted(groups, key=lambda group: -group.accuracy.mean)


def short_names(paths: Iterable[Path | str]) -> dict[str, Path]:
    """Paths by as little of each as tells them apart; a path given twice counts once."""
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


def _spheres(
    name: str, found: Inspection, method: Method, samples: int, reporter: Reporter
) -> dict[str, Picture]:
    spaces: list[Literal["raw", "whitened"]] = ["raw"]
    if found.whitened is not None:
        spaces.append("whitened")
    spheres: dict[str, Picture] = {}
    for space in spaces:
        reporter.message(f"{name}: laying out {space} features by {method}")
        try:
            options: dict[str, Any] = {"dim": 3, "samples": samples, "reporter": reporter}
            spheres[space] = evaluation.picture(found, space, method, **options)
        except ValueError as error:  # features of fewer than three dimensions, or not finite
            reporter.message(f"note: no sphere of {name}: {error}")
            return {}
    return spheres


def _collections(shown: list[Shown], root: Path | None, reporter: Reporter) -> list[Collection]:
    together: dict[Any, list[Shown]] = {}
    for run in shown:
        key = (run.inspection.key["data"], *run.inspection.class_names)
        together.setdefault(key, []).append(run)
    return [
        Collection(
            Path(runs[0].config.data).stem,
            sorted(runs, key=lambda run: -run.accuracy),
            _images(runs[0], root, reporter),
        )
        for runs in together.values()
    ]


def _images(run: Shown, root: Path | None, reporter: Reporter) -> Images | None:
    try:
        data = read_data(run.inspection, root)
    except (DataError, OSError) as error:
        reporter.message(f"note: no pictures of {run.config.data}: {error}")
        return None
    if not data.test.labels.equal(run.inspection.labels):
        reporter.message(f"note: no pictures of {run.config.data}: its test images have changed")
        return None
    return data.test


def _essence(config: TrainConfig) -> dict[str, Any]:
    """The settings that make two runs the same experiment, whatever their seed and data."""
    values = config.as_dict() | {"backbone": config.backbone_name}
    left_out = EXECUTION | {"seed", "data"}
    return {name: value for name, value in values.items() if name not in left_out}


def _labels(configs: Sequence[TrainConfig]) -> list[str]:
    """For each setting its head, and whatever else differs between the settings."""
    heads, others = [], []
    for config in configs:
        values = _essence(config)
        heads.append(values.pop("head"))
        others.append({**values.pop("head_options"), **values})
    differing = [
        name
        for name in sorted(set().union(*others))
        if len({repr(values.get(name)) for values in others}) > 1
    ]
    return [
        ", ".join([head, *(f"{name} {values[name]}" for name in differing if name in values)])
        for head, values in zip(heads, others, strict=True)
    ]
