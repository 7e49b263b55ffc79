"""The tables of the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchlace.report.page.gather import Collection, Shown
from torchlace.report.page.grouping import Group, Spread
from torchlace.report.page.measures import CLUSTERS, QUALITY, SPACES, Column, Measure


@dataclass
class Cell:
    """One cell: what is read, and what is sorted by."""

    text: str
    value: float | str | None = None
    best: bool = False


@dataclass
class Table:
    """A table; the first cell of a row is its heading."""

    caption: str
    columns: list[Column]
    rows: list[list[Cell]] = field(default_factory=list)

    def mark_best(self) -> Table:
        """Mark the best of every column that has a better side."""
        for place, column in enumerate(self.columns):
            cells = [row[place] for row in self.rows]
            known = [cell.value for cell in cells if isinstance(cell.value, (int, float))]
            if column.better and len(known) > 1:
                best = max(column.better * value for value in known)
                for cell in cells:
                    cell.best = (
                        isinstance(cell.value, (int, float)) and column.better * cell.value == best
                    )
        return self


def comparison_table(collection: Collection, groups: Sequence[Group]) -> Table:
    """Settings side by side, mean ± deviation over their runs."""
    measures = [each for each in QUALITY if _worthwhile(each, collection)]
    columns = [Column("Setting", words=True), Column("Runs"), *(each.column for each in measures)]
    table = Table("Settings compared: mean ± standard deviation over their runs", columns)
    for group in groups:
        cells = [_cell(_over_runs(group, each), each.digits) for each in measures]
        table.rows.append([Cell(group.label, group.label), _count(len(group.runs)), *cells])
    return table.mark_best()


def runs_table(runs: Sequence[Shown], labels: dict[str, str]) -> Table:
    """Every run: what it is, how it ended, what it took."""
    table = Table(
        "All runs",
        [
            Column("Run", words=True),
            Column("Setting", words=True),
            Column("Seed"),
            Column("Accuracy,\u00a0%", "Of the test images.", 1),
            Column("Validation,\u00a0%", "At the chosen epoch."),
            Column("Chosen epoch"),
            Column("Epochs"),
            Column("Temperature", "Fitted on the validation images."),
            Column("Parameters"),
            Column("Seconds", "Of training."),
            Column("Device", words=True),
        ],
    )
    for run in runs:
        result = run.inspection.result
        table.rows.append(
            [
                Cell(run.name, run.name),
                Cell(labels[run.name], labels[run.name]),
                _count(run.config.seed),
                _cell(run.accuracy),
                _cell(result.get("val_accuracy")),
                _count(run.chosen),
                _count(result.get("epochs")),
                _cell(run.inspection.temperature, 3),
                _count(result.get("parameters")),
                _cell(result.get("seconds"), 1),
                Cell(str(result.get("device", "–")), str(result.get("device", ""))),
            ]
        )
    return table.mark_best()


def clusters_table(runs: Sequence[Shown]) -> Table:
    """How well classes are separated among the features of every run."""
    columns = [Column("Run", words=True), Column("Space", words=True)]
    table = Table(
        "How well the classes are separated", [*columns, *(each.column for each in CLUSTERS)]
    )
    for run in runs:
        clusters = run.inspection.scores.get("clusters", {})
        for space, name in SPACES.items():
            if space in clusters:
                values = [_cell(each.of(clusters[space]), each.digits) for each in CLUSTERS]
                table.rows.append([Cell(run.name, run.name), Cell(name, name), *values])
    return table.mark_best()


def classes_table(collection: Collection) -> Table:
    """Accuracy of every class in every run."""
    counts = collection.labels.bincount(minlength=len(collection.class_names)).tolist()
    columns = [Column(run.name) for run in collection.runs]
    table = Table(
        "Accuracy of every class,\u00a0%", [Column("Class", words=True), Column("Images"), *columns]
    )
    for place, (name, count) in enumerate(zip(collection.class_names, counts, strict=True)):
        values = (run.inspection.scores["class_accuracy"][place] for run in collection.runs)
        table.rows.append([Cell(name, name), _count(count), *(_cell(value, 1) for value in values)])
    return table


def settings_table(runs: Sequence[Shown], *, differing: bool) -> Table:
    """Settings of all runs, a row each: those that differ, or those that don't."""
    every = [run.config.as_dict() | {"backbone": run.config.backbone_name} for run in runs]
    if differing:
        table = Table("Settings that differ", [Column("Setting", words=True)])
        table.columns += [Column(run.name, words=True) for run in runs]
    else:
        table = Table("Settings in common", [Column("Setting", words=True)])
        table.columns.append(Column("Value", words=True))
    for name in every[0]:
        values = [_plain(settings[name]) for settings in every]
        if (len(set(values)) > 1) == differing:
            shown = values if differing else values[:1]
            table.rows.append([Cell(name, name), *(Cell(value, value) for value in shown)])
    return table


def environment_table(runs: Sequence[Shown], folder: Path) -> Table:
    """What every run was made with, and where it lies as seen from ``folder``."""
    names = sorted({name for run in runs for name in run.inspection.result.get("versions", {})})
    columns = ["Run", "Directory", "Device", *names, "Digest of the data"]
    table = Table("Environment", [Column(name, words=True) for name in columns])
    for run in runs:
        result, facts = run.inspection.result, run.inspection.facts
        versions = result.get("versions", {})
        where = Path(os.path.relpath(run.inspection.path, folder)).as_posix()
        values = [run.name, where, result.get("device", "–")]
        values += [versions.get(name, "–") for name in names]
        table.rows.append([Cell(str(v), str(v)) for v in [*values, facts["data_digest"]]])
    return table


def _over_runs(group: Group, measure: Measure) -> Spread | None:
    values = [measure.of(run.inspection.scores) for run in group.runs]
    known = [value for value in values if value is not None]
    return Spread(known) if len(known) == len(values) else None


def _worthwhile(measure: Measure, collection: Collection) -> bool:
    if measure.path == ("top5_accuracy",) and len(collection.class_names) <= 5:
        return False
    return any(measure.of(run.inspection.scores) is not None for run in collection.runs)


def _cell(value: float | Spread | None, digits: int = 2) -> Cell:
    # NaN is unequal to itself: a class without test images has no accuracy.
    if value is None or value != value:
        return Cell("–")
    if isinstance(value, Spread):
        return Cell(value.text(digits), value.mean)
    return Cell(f"{value:,.{digits}f}", value)


def _count(value: float | None) -> Cell:
    return _cell(value, 0)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)
