"""What a table shows, as rows of text: the paper's layout, and a row for every number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchlace.experiments.experiment import Column
from torchlace.experiments.tables import Entry, Interval, Table


@dataclass(frozen=True)
class Text:
    """What a place of a sheet shows.

    Attributes:
        main: a line.
        style: ``bold``, ``underline``, ``code`` or nothing.
        below: a smaller line below it.
        link: the path of a file or folder behind it.
    """

    main: str
    style: str = ""
    below: str = ""
    link: str = ""


@dataclass(frozen=True)
class Sheet:
    """Rows of text below a header."""

    header: list[str]
    rows: list[list[Text]]


def summary_sheet(table: Table) -> Sheet:
    """The table as the paper has it, what was published below each number."""
    experiment = table.experiment
    rows = []
    usual = max((entry.wanted for entry in table.entries.values()), default=0)
    for row in experiment.rows:
        texts = [Text(row.label)]
        for column in experiment.columns:
            entry = table.entries[row.name, column.name]
            few = f" (n = {len(entry.values)})" if 0 < len(entry.values) < usual else ""
            style = {1: "bold", 2: "underline"}.get(entry.rank or 0, "")
            published = published_text(entry, column)
            below = f"{experiment.source} {published}" if published else ""
            link = re.sub(r":\d+$", "", entry.sources[0]) if entry.sources else ""
            texts.append(Text((mean_text(entry, column) or "–") + few, style, below, link))
        rows.append(texts)
    return Sheet(["", *(column.label for column in experiment.columns)], rows)


def details_sheet(table: Table) -> Sheet:
    """Every number of the table in a row of its own, with its interval, test and runs."""
    experiment = table.experiment
    header = ["column", "method", "n", "mean", "95 % interval"]
    if experiment.baseline is not None:
        header += [f"against {experiment.baseline}", "p"]
    header += [experiment.source, "difference", "runs"]
    rows = []
    for column in experiment.columns:
        for row in experiment.rows:
            entry = table.entries[row.name, column.name]
            if not (entry.values or entry.unfinished):
                continue
            texts = [column.label, row.label, str(len(entry.values)), mean_text(entry, column)]
            texts.append(_interval(entry.interval, column))
            if experiment.baseline is not None:
                within = _interval(entry.gain_interval, column)
                texts.append(f"{_signed(entry.gain, column)} {within}".strip())
                texts.append(_p_value(entry))
            texts += [published_text(entry, column), _signed(entry.from_published, column)]
            runs = ", ".join([*shortened(entry.sources), *entry.unfinished])
            rows.append([*map(Text, texts), Text(runs, "code")])
    used = [place for place in range(len(header)) if any(row[place].main for row in rows)]
    return Sheet([header[i] for i in used], [[row[i] for i in used] for row in rows])


def mean_text(entry: Entry, column: Column) -> str:
    """Mean and deviation of an entry, or nothing."""
    if entry.mean is None:
        return ""
    mean = f"{entry.mean:,.{column.digits}f}"
    return mean if entry.deviation is None else f"{mean} ± {entry.deviation:,.{column.digits}f}"


def published_text(entry: Entry, column: Column) -> str:
    """What was published, or nothing."""
    if entry.published is None:
        return ""
    mean, deviation = entry.published.mean, entry.published.deviation
    text = f"{mean:,.{column.digits}f}"
    return text if deviation is None else f"{text} ± {deviation:,.{column.digits}f}"


def shortened(sources: Iterable[str]) -> list[str]:
    """Sources that differ in their last number only, as one.

    Example:
        >>> shortened(["runs/a-s0", "runs/a-s1", "table1.jsonl:7"])
        ['runs/a-s0,1', 'table1.jsonl:7']
    """
    groups: dict[str, list[str]] = {}
    for source in sources:
        match = re.fullmatch(r"(.*?)(\d*)", source)
        assert match is not None
        groups.setdefault(match[1], []).append(match[2])
    return [stem + ",".join(numbers) for stem, numbers in groups.items()]


def _interval(interval: Interval | None, column: Column) -> str:
    if interval is None:
        return ""
    low, high = (f"{end:.{column.digits}f}" for end in interval)
    return f"[{low}, {high}]"


def _signed(value: float | None, column: Column) -> str:
    return "" if value is None else f"{value:+,.{column.digits}f}"


def _p_value(entry: Entry) -> str:
    if entry.test is None:
        return ""
    p = "< 0.001" if entry.test.p < 0.001 else f"{entry.test.p:.3f}"
    return f"{p}, n {entry.test.pairs}"
