"""The tables of the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from torchlace.evaluation.measures import CLUSTERS, SPACES, TRAINING, Measure, measures
from torchlace.evaluation.unknown import kept_unknown
from torchlace.report.page.gather import Collection, Group, Shown, Spread
from torchlace.runs import Run

_OF_A_RUN = (
    *("accuracy", "val_accuracy", "best_epoch", "epochs", "temperature", "parameters", "seconds"),
)


@dataclass(frozen=True)
class Column:
    """The head of a column: of words, or of figures, more of which (1) or less (-1) is better."""

    name: str
    about: str = ""
    better: int = 0
    words: bool = False


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
                best = column.better * max(column.better * value for value in known)
                for cell in cells:
                    cell.best = cell.value == best
        return self


def comparison_table(collection: Collection, groups: Sequence[Group]) -> Table:
    """Settings side by side, mean ± deviation over their runs."""
    runs = collection.runs
    shown = [
        each
        for each in measures()
        if each.short and any(each.value(run.inspection.figures) is not None for run in runs)
    ]
    runs_column = Column("Runs", "One for each seed; all of them count.")
    columns = [_words("Setting"), *map(_column, shown), runs_column]
    caption = "Settings compared" if groups[1:] else "Figures of merit"
    if any(len(group.runs) > 1 for group in groups):
        caption += ": mean ± standard deviation over their runs"
    table = Table(caption, columns)
    for group in groups:
        cells = [_number(_over_runs(group, each), each.digits) for each in shown]
        table.rows.append([_text(group.label), *cells, _count(len(group.runs))])
    return table.mark_best()


def runs_table(groups: Sequence[Group], runs: Sequence[Shown]) -> Table:
    """Every run: how it ended, what it took, what it is."""
    labels = {run.name: group.label for group in groups for run in group.runs}
    known = {each.name: each for each in (*measures(), *TRAINING)}
    shown = [known[name] for name in _OF_A_RUN]
    # A phone shows the first columns: numbers come before what else there is to know.
    columns = [_words("Run"), *map(_column, shown)]
    columns += [Column("Seed"), _words("Setting"), _words("Device")]
    table = Table("All runs", columns)
    for run in runs:
        figures = {**run.inspection.figures, "best_epoch": run.chosen}
        row = [_text(run.name), *(_number(each.value(figures), each.digits) for each in shown)]
        row += [_count(run.config.seed), _text(labels[run.name])]
        table.rows.append([*row, _text(run.inspection.result.get("device", "–"))])
    return table.mark_best()


def clusters_table(runs: Sequence[Shown]) -> Table:
    """How well classes are separated among the features of every run."""
    columns = [_words("Run"), _words("Space"), *map(_column, CLUSTERS)]
    table = Table("How well the classes are separated", columns)
    for run in runs:
        clusters = run.inspection.scores.get("clusters", {})
        for space, name in SPACES.items():
            if space in clusters:
                values = [_number(each.value(clusters[space]), each.digits) for each in CLUSTERS]
                table.rows.append([_text(run.name), _text(name), *values])
    return table.mark_best()


def unknown_table(runs: Sequence[Shown]) -> Table | None:
    """How well each run's best score, and its largest probability, tell other sets apart.

    None if no run was asked.
    """
    found = {run.name: kept_unknown(Run(run.inspection.path)) for run in runs}
    sets = sorted(
        {place for scores in found.values() for each in scores.values() for place in each}
    )
    if not sets:
        return None
    about = "Chance that a test image scores above one of the set"
    columns = [_words("Run"), _words("Score")]
    columns += [Column(Path(each).stem, about, 1) for each in sets]
    table = Table("Images of no known class told apart, AUROC\u00a0%", columns)
    for name, scores in found.items():
        means = {each: fmean(v["auroc"] for v in at.values()) for each, at in scores.items()}
        chosen = [max(means, key=means.__getitem__), "max-softmax"] if means else []
        for score in dict.fromkeys(chosen):
            values = (scores[score].get(each, {}).get("auroc") for each in sets)
            cells = [_number(None if value is None else 100 * value, 1) for value in values]
            table.rows.append([_text(name), _text(score), *cells])
    return table.mark_best()


def classes_table(collection: Collection) -> Table:
    """Accuracy of every class in every run."""
    names, runs = collection.class_names, collection.runs
    columns = [_words("Class"), Column("Images"), *(Column(run.name) for run in runs)]
    table = Table("Accuracy of every class,\u00a0%", columns)
    counts = collection.labels.bincount(minlength=len(names)).tolist()
    for place, (name, count) in enumerate(zip(names, counts, strict=True)):
        values = (run.inspection.scores["class_accuracy"][place] for run in runs)
        table.rows.append([_text(name), _count(count), *(_number(value, 1) for value in values)])
    return table


def settings_tables(runs: Sequence[Shown]) -> tuple[Table, Table]:
    """Settings of all runs, a row each: those that differ, and those in common."""
    differing = Table(
        "Settings that differ", [_words("Setting"), *(_words(run.name) for run in runs)]
    )
    common = Table("Settings in common", [_words("Setting"), _words("Value")])
    every = [run.config.as_dict() | {"backbone": run.config.backbone_name} for run in runs]
    for name in every[0]:
        values = [_plain(settings[name]) for settings in every]
        if len(set(values)) > 1:
            differing.rows.append([_text(each) for each in (name, *values)])
        else:
            common.rows.append([_text(name), _text(values[0])])
    return differing, common


def environment_table(runs: Sequence[Shown], folder: Path) -> Table:
    """What every run was made with, and where it lies as seen from ``folder``."""
    names = sorted({name for run in runs for name in run.inspection.result.get("versions", {})})
    columns = ["Run", "Directory", "Device", *names, "Digest of the data"]
    table = Table("Environment", [_words(name) for name in columns])
    for run in runs:
        result, versions = run.inspection.result, run.inspection.result.get("versions", {})
        where = Path(os.path.relpath(run.inspection.path, folder)).as_posix()
        values = [run.name, where, result.get("device", "–")]
        values += [versions.get(name, "–") for name in names]
        table.rows.append([_text(each) for each in [*values, run.inspection.facts["data_digest"]]])
    return table


def _over_runs(group: Group, measure: Measure) -> Spread | None:
    values = [measure.value(run.inspection.figures) for run in group.runs]
    known = [value for value in values if value is not None]
    return Spread(known) if len(known) == len(values) else None


def _column(measure: Measure) -> Column:
    return Column(measure.heading, f"{measure.about}.", measure.better)


def _words(name: str) -> Column:
    return Column(name, words=True)


def _text(value: object) -> Cell:
    return Cell(str(value), str(value))


def _number(value: float | Spread | None, digits: int = 2) -> Cell:
    # NaN is unequal to itself: a class without test images has no accuracy.
    if value is None or value != value:
        return Cell("–")
    if isinstance(value, Spread):
        return Cell(value.text(digits), value.mean)
    return Cell(f"{value:,.{digits}f}", value)


def _count(value: float | None) -> Cell:
    return _number(value, 0)


def _plain(value: Any) -> str:
    """A setting as text: options as name=value, and an en dash for what is not set."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)
