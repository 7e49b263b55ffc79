"""A table is a query over results: means, deviations, tests, intervals, ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from torchlace._text import counted
from torchlace.experiments.experiment import Column, Experiment, Published, Row
from torchlace.experiments.records import Record
from torchlace.experiments.statistics import (
    Array,
    Paired,
    deviation,
    holm,
    mean_interval,
    paired_test,
    unpack_right,
)

Interval = tuple[float, float]


@dataclass(frozen=True)
class Entry:
    """One number of a table, all that is known about it, and the runs behind it.

    Attributes:
        row: name of the row.
        column: name of the column.
        values: the score of every finished run, by seed.
        wanted: how many seeds the experiment asks for.
        sources: where each value is from.
        unfinished: runs that failed or were cut, and how.
        unscored: how many runs are finished and don't have the score.
        published: what was published.
        interval: 95 % bootstrap confidence interval of the mean, over test images.
        gain: difference of the means to the baseline, over the seeds that both have.
        gain_interval: its 95 % bootstrap confidence interval, over test images.
        test: paired t-test against the baseline over seeds, Holm-corrected in the column.
        rank: 1 for the best mean of the column, 2 for the second.
    """

    row: str
    column: str
    values: dict[int, float]
    wanted: int
    sources: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    unscored: int = 0
    published: Published | None = None
    interval: Interval | None = None
    gain: float | None = None
    gain_interval: Interval | None = None
    test: Paired | None = None
    rank: int | None = None
    at_work: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        return fmean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over seeds."""
        return deviation(list(self.values.values()))

    @property
    def from_published(self) -> float | None:
        """Difference of the mean to the published one."""
        if self.published is None or self.mean is None:
            return None
        return self.mean - self.published.mean


@dataclass(frozen=True)
class Table:
    """The entries of an experiment, ready to be shown."""

    experiment: Experiment
    entries: dict[tuple[str, str], Entry]
    notes: tuple[str, ...] = field(default=())

    def column(self, name: str) -> list[Entry]:
        """The entries of a column, row by row."""
        return [self.entries[row.name, name] for row in self.experiment.rows]


def make_table(experiment: Experiment, records: Mapping[str, Record]) -> Table:
    """The table of an experiment from the results that there are.

    Args:
        experiment: what is shown.
        records: results by the name of the run, see :func:`collect_records`.

    Example:
        >>> from torchlace.experiments import load_experiment
        >>> make_table(load_experiment("table1"), {}).entries["lace", "svhn"].wanted
        3
    """
    found: dict[tuple[str, str], dict[int, Record]] = {}
    for cell in experiment.cells():
        runs = found.setdefault((cell.row, cell.column), {})
        if cell.task.name in records:
            runs[cell.task.config.seed] = records[cell.task.name]
    entries: dict[tuple[str, str], Entry] = {}
    for column in experiment.columns:
        shown = {
            row.name: _entry(experiment, row, column, found.get((row.name, column.name), {}))
            for row in experiment.rows
        }
        if experiment.baseline in shown and column.best != "none":
            shown = _compared(shown, experiment.baseline, column, found)
        entries |= {(e.row, e.column): e for e in _ranked(list(shown.values()), column)}
    return Table(experiment, entries, _notes(experiment, entries))


def _entry(experiment: Experiment, row: Row, column: Column, runs: Mapping[int, Record]) -> Entry:
    score = experiment.score(row, column)
    scored = {
        seed: (record, value)
        for seed, record in sorted(runs.items())
        if record.finished and (value := record.score(score)) is not None
    }
    records = {seed: record for seed, (record, _) in scored.items()}
    counted = score == "test_accuracy" and _same_images(records.values())
    return Entry(
        row.name,
        column.name,
        {seed: value for seed, (_, value) in scored.items()},
        row.seeds or experiment.seeds,
        tuple(record.source for record in records.values()),
        tuple(
            f"{record.source} ({record.line['status']})"
            for record in runs.values()
            if not (record.finished or record.running)
        ),
        sum(record.finished for record in runs.values()) - len(scored),
        row.published.get(column.name),
        mean_interval(100 * _right(records)) if counted else None,
        at_work=tuple(record.source for record in runs.values() if record.running),
    )


def _compared(
    shown: Mapping[str, Entry],
    baseline: str,
    column: Column,
    found: Mapping[tuple[str, str], Mapping[int, Record]],
) -> dict[str, Entry]:
    """The entries with their gain over the baseline, tested over the seeds that both have."""
    base, compared = shown[baseline], dict(shown)
    for name, entry in shown.items():
        seeds = [seed for seed in entry.values if seed in base.values]
        if name == baseline or not seeds:
            continue
        own, other = ([each.values[seed] for seed in seeds] for each in (entry, base))
        interval = None
        if entry.interval is not None:
            mine, theirs = (
                {seed: found[row, column.name][seed] for seed in seeds} for row in (name, baseline)
            )
            if _same_images([*mine.values(), *theirs.values()]):
                interval = mean_interval(100 * (_right(mine) - _right(theirs)))
        compared[name] = dataclasses.replace(
            entry,
            gain=fmean(own) - fmean(other),
            gain_interval=interval,
            test=paired_test(own, other),
        )
    tested = [(name, entry.test) for name, entry in compared.items() if entry.test is not None]
    corrected = holm([test.p for _, test in tested])
    for (name, test), p in zip(tested, corrected, strict=True):
        compared[name] = dataclasses.replace(compared[name], test=Paired(p, test.pairs))
    return compared


def _ranked(entries: list[Entry], column: Column) -> list[Entry]:
    """Ranks by the means as they are shown; what looks the same ranks the same."""
    if column.best == "none":
        return entries
    sign = -1 if column.best == "highest" else 1
    means = [None if e.mean is None else sign * round(e.mean, column.digits) for e in entries]
    order = sorted({mean for mean in means if mean is not None})[:2]
    return [
        dataclasses.replace(entry, rank=order.index(mean) + 1) if mean in order else entry
        for entry, mean in zip(entries, means, strict=True)
    ]


def _right(records: Mapping[int, Record]) -> Array:
    """How often every test image was right, over seeds."""
    right: Array = np.mean([unpack_right(record.line) for record in records.values()], axis=0)
    return right


def _same_images(records: Iterable[Record]) -> bool:
    return len({record.line["data_digest"] for record in records}) == 1


def _notes(experiment: Experiment, entries: Mapping[tuple[str, str], Entry]) -> tuple[str, ...]:
    notes = [experiment.about] if experiment.about else []
    counts = sorted({len(entry.values) for entry in entries.values() if entry.values})
    several = f" (n = {' or '.join(map(str, counts))})" if counts else ""
    notes.append(f"Mean ± sample deviation over seeds{several}; best bold, second underlined.")
    if any(entry.interval for entry in entries.values()):
        notes.append("Intervals: 95 %, bootstrap over test images, 10,000 draws.")
    if any(entry.test for entry in entries.values()):
        notes.append(
            f"p: paired t-test across seeds against {experiment.baseline}, two-sided, "
            "Holm-corrected over the rows of a column."
        )
    for column in experiment.columns:
        # A score that no run has is perhaps mistyped, or needs `inspect: true`.
        shown = [entries[row.name, column.name] for row in experiment.rows]
        if any(entry.unscored for entry in shown) and not any(entry.values for entry in shown):
            notes.append(f"{column.label}: none of its finished runs has a {column.score}.")
    unfinished = {run for entry in entries.values() for run in entry.unfinished}
    if unfinished:
        count = counted(len(unfinished), "run")
        notes.append(f"{count} failed or cut: listed, but not counted.")
    at_work = {run for entry in entries.values() for run in entry.at_work}
    if at_work:
        notes.append(f"{counted(len(at_work), 'run')} at work: not counted yet.")
    return tuple(notes)
