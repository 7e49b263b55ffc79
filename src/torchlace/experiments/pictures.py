"""What figures of an experiment show: embeddings of features and curves, from lines of results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from torchlace.experiments.cells import Task
from torchlace.experiments.experiment import Experiment
from torchlace.experiments.records import Record
from torchlace.runs import Run

_SPACES = {"raw": "before whitening", "whitened": "after whitening"}


@dataclass(frozen=True)
class Panels:
    """What a figure shows.

    Attributes:
        panels: by title, points (M, 2 or 3) and in the plane the class signatures (C, 2).
        labels: class of every point, (M,).
        class_names: a name for each class.
    """

    panels: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any] | None]]
    labels: npt.NDArray[Any]
    class_names: list[str]


def collect_panels(experiment: Experiment, records: Mapping[str, Record]) -> Panels:
    """The embeddings of an experiment's first seed, row by row; of the same images in all."""
    panels: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any] | None]] = {}
    drawn: list[dict[str, Any]] = []
    labels = {row.name: row.label for row in experiment.rows}
    first: dict[str, str] = {}
    for cell in experiment.cells():
        first.setdefault(cell.row, cell.task.name)
    for row, name in first.items():
        found = records[name].line.get("embeddings", {}) if name in records else {}
        for kind in filter(found.__contains__, experiment.embeddings):
            several = len(experiment.embeddings) > 1
            title = f"{labels[row]}, {_SPACES[kind.split('-')[0]]}" if several else labels[row]
            each = found[kind]
            points, signatures = (
                decode(each[part], np.float16).reshape(-1, each["dim"])
                for part in ("points", "signatures")
            )
            panels[title] = (points, signatures if each["dim"] == 2 else None)
            drawn.append(each)
    if not drawn:
        raise ValueError(f"there is no embedding of {experiment.name} to draw: run it first")
    if any(each["indices"] != drawn[0]["indices"] for each in drawn):
        raise ValueError(f"the embeddings of {experiment.name} show different images")
    return Panels(panels, decode(drawn[0]["labels"], np.int16), drawn[0]["class_names"])


def collect_curves(
    experiment: Experiment, records: Mapping[str, Record]
) -> dict[str, dict[str, list[list[float]]]]:
    """Validation accuracies of finished runs: by column and row, those of every epoch and seed.

    Rows that show the same runs are one, named by what their labels begin with; so are columns,
    named by their data.
    """
    runs: dict[str, dict[str, list[Task]]] = {}
    for cell in experiment.cells():
        runs.setdefault(cell.column, {}).setdefault(cell.row, []).append(cell.task)
    labels = {row.name: row.label for row in experiment.rows}
    titles = {column.name: column.label for column in experiment.columns}
    found: dict[str, dict[str, list[list[float]]]] = {}
    for columns in _alike(runs):
        rows = runs[columns[0]]
        data = dict.fromkeys(task.config.data for tasks in rows.values() for task in tasks)
        title = titles[columns[0]] if len(columns) == 1 else ", ".join(data)
        for names in _alike(rows):
            tasks = [task.name for task in rows[names[0]]]
            finished = [records[n].line for n in tasks if n in records and records[n].finished]
            for line in finished:
                if "validation" not in line:
                    raise ValueError(f"the line of {line['run']} has no validation curve to draw")
            if finished:
                parts = zip(*(labels[name].split(", ") for name in names), strict=False)
                label = ", ".join(part[0] for part in takewhile(lambda p: len({*p}) == 1, parts))
                label = label or labels[names[0]]
                if label in found.setdefault(title, {}):
                    raise ValueError(
                        f"{experiment.name} has several columns {title!r} with rows {label!r}: "
                        "give them labels of their own"
                    )
                found[title][label] = [line["validation"]["accuracy"] for line in finished]
    if not found:
        raise ValueError(f"there is no finished run of {experiment.name} to draw: run it first")
    return found


def _alike(values: Mapping[str, Any]) -> list[list[str]]:
    """The names of equal values together."""
    groups: list[list[str]] = []
    for name, value in values.items():
        alike = [group for group in groups if values[group[0]] == value]
        if alike:
            alike[0].append(name)
        else:
            groups.append([name])
    return groups


def encode(values: Any, kind: npt.DTypeLike) -> str:
    """An array as text."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def decode(text: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array from the text of :func:`encode`, flat."""
    return np.frombuffer(base64.b64decode(text), kind)


def draw_embeddings(task: Task, run: Run) -> dict[str, Any]:
    """Examine a finished run; the pictures of its features that are needed, as lines hold them."""
    from torchlace.evaluation import inspect, picture

    found = inspect(run, device=task.config.device)
    drawn = {}
    for name in task.embeddings:
        space, method, dimension = name.split("-")
        # The names were checked when the experiment was read.
        wanted: Any = {"space": space, "method": method, "dim": int(dimension[0])}
        result = picture(found, **wanted)
        drawn[name] = {
            "class_names": list(found.class_names),
            "dim": wanted["dim"],
            "indices": encode(result.indices, np.int32),
            "labels": encode(found.labels.numpy()[result.indices], np.int16),
            "points": encode(result.points, np.float16),
            "signatures": encode(result.signatures, np.float16),
        }
    return drawn
