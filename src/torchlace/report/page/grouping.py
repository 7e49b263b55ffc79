"""Runs of the same settings, taken together over their seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from torchlace.report.page.gather import Shown
from torchlace.runs import TrainConfig
from torchlace.runs.config import EXECUTION


@dataclass(frozen=True)
class Group:
    """Runs that differ by their seed only.

    Attributes:
        label: what sets it apart from the other groups.
        runs: its runs.
    """

    label: str
    runs: list[Shown]


@dataclass(frozen=True)
class Spread:
    """Values of one figure over the runs of a group.

    Example:
        >>> Spread([1.0, 3.0]).text(1).split()
        ['2.0', '±', '1.4']
    """

    values: list[float]

    @property
    def mean(self) -> float:
        """Of the values."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Of the sample; None for a single value."""
        return stdev(self.values) if len(self.values) > 1 else None

    def text(self, digits: int = 2) -> str:
        """Mean ± deviation, on one line."""
        mean = f"{self.mean:.{digits}f}"
        if self.deviation is None:
            return mean
        return f"{mean}\u00a0±\u00a0{self.deviation:.{digits}f}"


def group_runs(runs: Sequence[Shown]) -> list[Group]:
    """Groups of runs of the same settings, the highest mean accuracy first."""
    together: dict[str, list[Shown]] = {}
    for run in runs:
        key = json.dumps(essence(run.config), sort_keys=True, default=str)
        together.setdefault(key, []).append(run)
    labels = _labels([runs[0].config for runs in together.values()])
    groups = [Group(*each) for each in zip(labels, together.values(), strict=True)]
    return sorted(groups, key=lambda group: -fmean(run.accuracy for run in group.runs))


def essence(config: TrainConfig) -> dict[str, Any]:
    """What makes two runs the same experiment, but for the seed and what they were tested on.

    Example:
        >>> essence(TrainConfig(seed=1)) == essence(TrainConfig(seed=2, backbone="small-cnn"))
        True
    """
    values = config.as_dict() | {"backbone": config.backbone_name}
    left_out = EXECUTION | {"seed", "data"}
    return {name: value for name, value in values.items() if name not in left_out}


def _labels(configs: Sequence[TrainConfig]) -> list[str]:
    """The head, and whatever else differs between the settings."""
    heads, others = [], []
    for config in configs:
        values = essence(config)
        heads.append(values.pop("head"))
        others.append({**values.pop("head_options"), **values})
    differing = [
        name
        for name in sorted(set().union(*others))
        if len({repr(values.get(name)) for values in others}) > 1
    ]
    labels = []
    for head, values in zip(heads, others, strict=True):
        known = (name for name in differing if name in values)
        labels.append(", ".join([head, *(f"{name} {values[name]}" for name in known)]))
    return labels
