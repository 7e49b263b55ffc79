"""Makes a table of results, and the statistics in it: tests over seeds, intervals over images."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from torchlace._text import counted
from torchlace.experiments.experiment import Column, Experiment, Published, Row
from torchlace.experiments.records import Record

_CSV = (
    *("experiment", "row", "column", "score", "n", "wanted", "mean", "deviation", "low", "high"),
    *("rank", "baseline", "gain", "gain_low", "gain_high", "p_holm", "pairs", "published"),
    *("published_deviation", "from_published", "seeds", "values", "runs", "unfinished"),
)
_NOTHING = (None, None)
Interval = tuple[float, float]


class Paired(NamedTuple):
    """The outcome of a paired t-test: the p-value, two-sided, and the number of pairs."""

    p: float
    pairs: int


@dataclass
class Entry:
    """One number of a table, all that is known about it, and the runs behind it.

    Attributes:
        row: name of the row.
        column: name of the column.
        values: the score of every finished run, by seed.
        wanted: how many seeds the experiment asks for.
        sources: where each value is from.
        unfinished: runs that failed or were cut, and how.
        at_work: runs that are not over yet.
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
    at_work: tuple[str, ...] = ()
    unscored: int = 0
    published: Published | None = None
    interval: Interval | None = None
    gain: float | None = None
    gain_interval: Interval | None = None
    test: Paired | None = None
    rank: int | None = None

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
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> list[Entry]:
        """The entries of a column, row by row."""
        return [self.entries[row.name, name] for row in self.experiment.rows]


def make_table(experiment: Experiment, records: Mapping[str, Record]) -> Table:
    """The table of an experiment from the results that there are, by :func:`collect_records`.

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
        by_row = {row.name: found.get((row.name, column.name), {}) for row in experiment.rows}
        shown = [_entry(experiment, row, column, by_row[row.name]) for row in experiment.rows]
        if column.best != "none":
            _compare(shown, experiment.baseline, by_row)
            _rank(shown, column)
        entries |= {(entry.row, entry.column): entry for entry in shown}
    return Table(experiment, entries, _notes(experiment, entries))


def to_csv(table: Table) -> str:
    """A table as CSV: a line for every number, unrounded."""
    experiment = table.experiment
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV)
    for column in experiment.columns:
        for row in experiment.rows:
            entry = table.entries[row.name, column.name]
            names = [experiment.name, row.name, column.name, experiment.score(row, column)]
            own = [len(entry.values), entry.wanted, entry.mean, entry.deviation]
            own += [*(entry.interval or _NOTHING), entry.rank]
            gain = [experiment.baseline, entry.gain, *(entry.gain_interval or _NOTHING)]
            known = [*(entry.test or _NOTHING), *(entry.published or _NOTHING)]
            runs = [" ".join(map(str, entry.values)), " ".join(map(repr, entry.values.values()))]
            runs += [" ".join(entry.sources), "; ".join(entry.unfinished)]
            writer.writerow([*names, *own, *gain, *known, entry.from_published, *runs])
    return out.getvalue()


def deviation(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None of fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_test(values: Sequence[float], baseline: Sequence[float]) -> Paired | None:
    """Paired t-test of the hypothesis that both have the same mean; None below two pairs.

    None, too, where all differences are the same, and so have no scatter, unless all are zero.

    Example:
        >>> round(paired_test([91.0, 90.6, 90.9], [89.9, 88.1, 89.0]).p, 4)
        0.0456
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values: {len(values)} against {len(baseline)}")
    differences = np.subtract(values, baseline)
    if len(differences) < 2:
        return None
    if np.ptp(differences) <= 1e-12 * np.abs(np.concatenate([values, baseline])).max():
        return None if differences.any() else Paired(1.0, len(differences))
    from scipy import stats

    return Paired(float(stats.ttest_rel(values, baseline).pvalue), len(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for how many they are, by Holm's step-down method.

    Example:
        >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    count, least = len(p_values), 0.0
    corrected = [0.0] * count
    for rank, place in enumerate(np.argsort(p_values, kind="stable").tolist()):
        least = max(least, min(1.0, (count - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def mean_interval(
    scores: npt.ArrayLike, *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Bootstrap confidence interval of the mean over samples, by percentiles.

    Args:
        scores: of each test image, (N,): whether it was right, or how often over seeds; or the
            difference of two methods' scores, to compare them on the same images.
        level: of confidence.
        draws: of samples of size N, with replacement.
        seed: of the draws.

    Example:
        >>> [round(end, 3) for end in mean_interval([1] * 900 + [0] * 100)]
        [0.881, 0.918]
    """
    flat = np.asarray(scores, dtype=np.float64).ravel()
    if not len(flat):
        raise ValueError("an interval needs at least one score")
    distinct, counts = np.unique(flat, return_counts=True)
    generator = np.random.default_rng(seed)
    # How often each distinct score is drawn: as many numbers as there are of these, not of samples.
    drawn = generator.multinomial(len(flat), counts / len(flat), size=draws)
    means = drawn @ distinct / len(flat)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _entry(experiment: Experiment, row: Row, column: Column, runs: Mapping[int, Record]) -> Entry:
    score = experiment.score(row, column)
    finished = {seed: record for seed, record in sorted(runs.items()) if record.finished}
    scores = {seed: record.score(score) for seed, record in finished.items()}
    values = {seed: value for seed, value in scores.items() if value is not None}
    others = [record for record in runs.values() if not record.finished]
    return Entry(
        row.name,
        column.name,
        values,
        row.seeds or experiment.seeds,
        sources=tuple(finished[seed].source for seed in values),
        unfinished=tuple(f"{r.source} ({r.line['status']})" for r in others if not r.running),
        at_work=tuple(record.source for record in others if record.running),
        unscored=len(scores) - len(values),
        published=row.published.get(column.name),
        interval=_over_images([*finished.values()]) if score == "test_accuracy" else None,
    )


def _compare(
    shown: Sequence[Entry], baseline: str | None, runs: Mapping[str, Mapping[int, Record]]
) -> None:
    """Note each entry's gain over the baseline, tested over the seeds that both have."""
    base = next((entry for entry in shown if entry.row == baseline), None)
    if base is None:
        return
    for entry in shown:
        seeds = [seed for seed in entry.values if seed in base.values]
        if entry is base or not seeds:
            continue
        own, other = ([each.values[seed] for seed in seeds] for each in (entry, base))
        entry.gain = fmean(own) - fmean(other)
        entry.test = paired_test(own, other)
        if entry.interval is not None:
            mine, theirs = ([runs[each.row][seed] for seed in seeds] for each in (entry, base))
            entry.gain_interval = _over_images(mine, theirs)
    tested = [(entry, entry.test) for entry in shown if entry.test is not None]
    corrected = holm([test.p for _, test in tested])
    for (entry, test), p in zip(tested, corrected, strict=True):
        entry.test = Paired(p, test.pairs)


def _rank(shown: Sequence[Entry], column: Column) -> None:
    """Rank by the means as they are shown; what looks the same ranks the same."""
    sign = -1 if column.best == "highest" else 1
    means = [None if e.mean is None else sign * round(e.mean, column.digits) for e in shown]
    order = sorted({mean for mean in means if mean is not None})[:2]
    for entry, mean in zip(shown, means, strict=True):
        entry.rank = order.index(mean) + 1 if mean in order else None


def _over_images(mine: Sequence[Record], theirs: Sequence[Record] = ()) -> Interval | None:
    """The interval of a mean accuracy, or of a difference of two, if all saw the same images."""
    if len({record.line["data_digest"] for record in (*mine, *theirs)}) != 1:
        return None
    # How often every test image was right, over seeds.
    right = np.mean([record.right() for record in mine], axis=0)
    if theirs:
        right = right - np.mean([record.right() for record in theirs], axis=0)
    return mean_interval(100 * right)


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
    if unfinished := {run for entry in entries.values() for run in entry.unfinished}:
        notes.append(f"{counted(len(unfinished), 'run')} failed or cut: listed, but not counted.")
    if at_work := {run for entry in entries.values() for run in entry.at_work}:
        notes.append(f"{counted(len(at_work), 'run')} at work: not counted yet.")
    return tuple(notes)
