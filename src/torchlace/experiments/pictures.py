"""Features and curves of several runs, from their lines of results, ready to be drawn."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from torchlace.experiments.experiment import Experiment
from torchlace.experiments.records import Record

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
    """The embeddings of an experiment's first seed, row by row.

    Raises:
        ValueError: if there are none, or if they show different images.
    """
    panels: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any] | None]] = {}
    drawn: list[dict[str, Any]] = []
    labels = {row.name: row.label for row in experiment.rows}
    names: dict[str, str] = {}
    for cell in experiment.cells():
        names.setdefault(cell.row, cell.task.name)
    for row, name in names.items():
        found = records[name].line.get("embeddings", {}) if name in records else {}
        for kind in experiment.embeddings:
            if kind not in found:
                continue
            several = len(experiment.embeddings) > 1
            title = f"{labels[row]}, {_SPACES[kind.split('-')[0]]}" if several else labels[row]
            each = found[kind]
            points, signatures = (
                unpack(each[part], np.float16).reshape(-1, each["dim"])
                for part in ("points", "signatures")
            )
            panels[title] = (points, signatures if each["dim"] == 2 else None)
            drawn.append(each)
    if not drawn:
        raise ValueError(f"there is no embedding of {experiment.name} to draw: run it first")
    if any(each["indices"] != drawn[0]["indices"] for each in drawn):
        raise ValueError(f"the embeddings of {experiment.name} show different images")
    return Panels(panels, unpack(drawn[0]["labels"], np.int16), drawn[0]["class_names"])


def collect_curves(
    experiment: Experiment, records: Mapping[str, Record]
) -> dict[str, dict[str, list[list[float]]]]:
    """Validation accuracies of finished runs: by column and row, those of every epoch and seed.

    Columns that show the same runs are one, named by the first.

    Raises:
        ValueError: if there are none.
    """
    columns = {column.name: column.label for column in experiment.columns}
    labels = {row.name: row.label for row in experiment.rows}
    runs: dict[str, dict[str, list[str]]] = {}
    for cell in experiment.cells():
        names = runs.setdefault(columns[cell.column], {}).setdefault(labels[cell.row], [])
        names.append(cell.task.name)
    found: dict[str, dict[str, list[list[float]]]] = {}
    shown: list[dict[str, list[str]]] = []
    for column, rows in runs.items():
        if rows in shown:
            continue
        shown.append(rows)
        for row, names in rows.items():
            finished = [records[n] for n in names if n in records and records[n].finished]
            if finished:
                curves = [record.line["validation"]["accuracy"] for record in finished]
                found.setdefault(column, {})[row] = curves
    if not found:
        raise ValueError(f"there is no finished run of {experiment.name} to draw: run it first")
    return found


def pack(values: Any, kind: npt.DTypeLike) -> str:
    """An array as text.

    Example:
        >>> unpack(pack([1, 2], np.int16), np.int16)
        array([1, 2], dtype=int16)
    """
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode()


def unpack(text: str, kind: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array from the text of :func:`pack`, flat."""
    return np.frombuffer(base64.b64decode(text), kind)
