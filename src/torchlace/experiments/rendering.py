"""Shows a table in the terminal, as Markdown, LaTeX, CSV or a fragment of HTML."""

from __future__ import annotations

import html
import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from torchlace._checks import check_choice
from torchlace._text import shown
from torchlace.experiments.experiment import Column
from torchlace.experiments.records import shortened
from torchlace.experiments.tables import Interval, Table, to_csv

FORMATS = ("terminal", "markdown", "latex", "csv", "html")
# In a terminal: what names of rows have at least, if they are long; and what lies between columns.
_NAME, _BETWEEN = 20, 2


def render(
    table: Table,
    form: str = "terminal",
    *,
    width: int = 100,
    styled: bool = False,
    folder: Path | str = ".",
) -> str:
    """A table in one of :data:`FORMATS`.

    All but CSV show the table as the paper has it, then a row for every number with its interval,
    test and runs. CSV has a line for every number, unrounded.

    Args:
        table: what to show.
        form: the format.
        width: of the terminal.
        styled: whether the terminal shows bold and underlined text.
        folder: where the text will be kept; links of HTML lead from there to the runs.

    Example:
        >>> from torchlace.experiments import load_experiment, make_table
        >>> table = make_table(load_experiment("table4"), {})
        >>> print(render(table, "csv").splitlines()[1][:36])
        table4,softmax,cifar10,test_accuracy
    """
    check_choice("format", form, FORMATS)
    if form == "csv":
        return to_csv(table)
    sheets = [sheet for sheet in (summary_sheet(table), details_sheet(table)) if sheet.rows]
    if form == "terminal":
        return _terminal(table, sheets, width, styled)
    if form == "html":
        return _html(table, sheets, Path(folder))
    return _markdown(table, sheets) if form == "markdown" else _latex(table, sheets)


@dataclass(frozen=True)
class Text:
    """What a place of a sheet shows: a line in ``bold``, ``underline``, ``code`` or no style.

    A smaller line may stand below it, and the path of a file or folder behind it.
    """

    main: str
    style: str = ""
    below: str = ""
    link: str = ""


@dataclass(frozen=True)
class Sheet:
    """Rows of text below a header; the first ``keys`` columns say what a row is."""

    header: list[str]
    rows: list[list[Text]]
    keys: int = 1


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
            published = _figures(column, entry.published)
            below = f"{experiment.source} {published}" if published else ""
            link = re.sub(r":\d+$", "", entry.sources[0]) if entry.sources else ""
            mean = _figures(column, (entry.mean, entry.deviation)) or "–"
            texts.append(Text(mean + few, style, below, link))
        rows.append(texts)
    return Sheet(["", *(column.label for column in experiment.columns)], rows)


def details_sheet(table: Table) -> Sheet:
    """Every number of the table in a row of its own; columns that would be empty are left out."""
    experiment = table.experiment
    # What each is over: test images say how sure a run's figure is, seeds how much runs scatter.
    header = ["column", "method", "n", "mean", "95 % over images"]
    header += [f"against {experiment.baseline}, 95 % over images", "p over seeds"]
    header += [experiment.source, "difference", "runs"]
    rows = []
    for column in experiment.columns:
        for row in experiment.rows:
            entry = table.entries[row.name, column.name]
            if not (entry.values or entry.unfinished):
                continue
            gain = _figures(column, [entry.gain], sign="+")
            difference = _figures(column, [entry.from_published], sign="+")
            mean = _figures(column, (entry.mean, entry.deviation))
            p = ""
            if entry.test is not None:
                p = "< 0.001" if entry.test.p < 0.001 else f"{entry.test.p:.3f}"
                p += f", n {entry.test.pairs}"
            texts = [column.label, row.label, str(len(entry.values)), mean]
            texts += [_interval(column, entry.interval)]
            texts += [f"{gain} {_interval(column, entry.gain_interval)}".strip(), p]
            texts += [_figures(column, entry.published), difference]
            runs = ", ".join([*shortened(entry.sources), *entry.unfinished])
            rows.append([*map(Text, texts), Text(runs, "code")])
    used = [place for place in range(len(header)) if any(row[place].main for row in rows)]
    return Sheet([header[i] for i in used], [[row[i] for i in used] for row in rows], keys=2)


def _figures(
    column: Column, values: Iterable[float | None] | None, between: str = " ± ", sign: str = ""
) -> str:
    """The numbers that there are, or nothing."""
    known = [value for value in values or () if value is not None]
    return between.join(f"{value:{sign},.{column.digits}f}" for value in known)


def _interval(column: Column, ends: Interval | None) -> str:
    return f"[{_figures(column, ends, ', ')}]" if ends else ""


def _terminal(table: Table, sheets: list[Sheet], width: int, styled: bool) -> str:
    from rich import box
    from rich.console import Console
    from rich.style import Style
    from rich.table import Table as Grid
    from rich.text import Text as Styled

    def show(text: Text) -> Styled:
        link = Path(text.link).resolve().as_uri() if text.link else None
        bold, underline = (text.style == name or None for name in ("bold", "underline"))
        main = Styled(shown(text.main), Style(bold=bold, underline=underline, link=link))
        below = Styled(f"\n{shown(text.below)}", "dim")
        return Styled.assemble(main, below) if text.below else main

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=styled, highlight=False)
    # Not strings: their brackets would be taken for markup, and :cat: for a picture.
    console.print(Styled(shown(table.experiment.title), "bold"))
    for sheet in sheets:
        for widths in _strips(sheet, width):
            grid = Grid(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
            for place, own in widths.items():
                # Numbers have room; names and headings are broken between words.
                grid.add_column(Styled(shown(sheet.header[place])), overflow="fold", width=own)
            for number, row in enumerate(sheet.rows):
                if number and sheet.keys > 1 and row[0] != sheet.rows[number - 1][0]:
                    grid.add_section()
                grid.add_row(*(show(row[place]) for place in widths))
            console.print(grid)
    for note in (*table.notes, "The formats csv, markdown and html name the runs of every number."):
        console.print(Styled(shown(note)))
    return out.getvalue()


def _strips(sheet: Sheet, width: int) -> list[dict[int, int]]:
    """The columns of a sheet in parts that a terminal has room for, and how wide each is.

    Every part begins with the names of rows.
    """

    def cells(place: int) -> int:
        texts = (text for row in sheet.rows for text in (row[place].main, row[place].below))
        return max(map(len, texts), default=0)

    def word(place: int) -> int:
        return max(map(len, [*sheet.header[place].split(), ""]))

    # Paths would leave no room for numbers: in a terminal the numbers are links to them.
    places = [place for place, name in enumerate(sheet.header) if name != "runs"]
    keys = {place: max(min(cells(place), _NAME), word(place)) for place in places[: sheet.keys]}
    strips: list[dict[int, int]] = []
    room = 0
    for place in places[sheet.keys :]:
        own = max(cells(place), word(place))
        if own + _BETWEEN > room or not strips:
            strips.append({**keys})
            room = width - _BETWEEN - sum(each + _BETWEEN for each in keys.values())
        strips[-1][place] = own
        room -= own + _BETWEEN
    for strip in strips:
        left = width - _BETWEEN - sum(each + _BETWEEN for each in strip.values())
        for place in keys:
            more = max(min(cells(place) - strip[place], left), 0)
            strip[place] += more
            left -= more
    return strips or [keys]


def _marked(text: Text, plain: str, bold: str, underline: str, code: str) -> str:
    """A text in the marks of its style, where there is any text."""
    marks = {"bold": bold, "underline": underline, "code": code}.get(text.style, "{}")
    return marks.format(plain) if plain else ""


def _markdown(table: Table, sheets: list[Sheet]) -> str:
    def escaped(text: str) -> str:
        return re.sub(r"([|*_`<\\])", r"\\\1", text)

    def show(text: Text) -> str:
        plain = text.main.replace("|", "\\|") if text.style == "code" else escaped(text.main)
        below = f"<br>{escaped(text.below)}" if text.below else ""
        return _marked(text, plain, "**{}**", "<u>{}</u>", "`{}`") + below

    parts = [f"**{escaped(table.experiment.title)}**"]
    for sheet in sheets:
        lines = [[*map(escaped, sheet.header)], ["---"] * len(sheet.header)]
        lines += [[*map(show, row)] for row in sheet.rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*parts, *table.notes]) + "\n"


def _latex(table: Table, sheets: list[Sheet]) -> str:
    def show(text: Text) -> str:
        plain = _latex_text(text.main)
        return _marked(text, plain, r"\textbf{{{}}}", r"\underline{{{}}}", r"\texttt{{{}}}")

    def written(row: list[Text]) -> str:
        lines = [[*map(show, row)]]
        if any(text.below for text in row):
            small = (_latex_text(text.below) for text in row)
            lines.append([f"{{\\scriptsize {text}}}" if text else "" for text in small])
        return "\n".join(" & ".join(line) + r" \\" for line in lines)

    parts = []
    for sheet in sheets:
        spaced = any(text.below for row in sheet.rows for text in row)
        lines = [
            rf"\begin{{tabular}}{{{'l' * len(sheet.header)}}}",
            *(r"\toprule", " & ".join(map(_latex_text, sheet.header)) + r" \\", r"\midrule"),
            ("\n\\addlinespace\n" if spaced else "\n").join(map(written, sheet.rows)),
            *(r"\bottomrule", r"\end{tabular}"),
        ]
        parts.append("\n".join(lines))
    head = (
        f"% {' '.join(table.experiment.title.split())}\n"
        "% Needs \\usepackage{booktabs}. The second table has a row for every number and is wide:\n"
        "% \\usepackage{graphicx} brings \\resizebox{\\linewidth}{!}{...}, which makes it fit."
    )
    # A paragraph between the tables, unless they are taken apart.
    notes = [f"% {note}" for note in table.notes]
    return "\n\n".join([head, "\n\n\\bigskip\n".join(parts), *notes]) + "\n"


def _latex_text(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"}
    special |= {"^": r"\textasciicircum{}", "–": "--", **{each: f"\\{each}" for each in "&%$#_{}"}}
    # In LaTeX's own fonts these would be other characters; a bracket would be a length after \\.
    special |= {"<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "[": "{[}"}
    text = re.sub(r"(?<![\w.)}])-(?=\.?\d)", "−", text)  # a hyphen is shorter than a minus
    return "".join(special.get(character, character) for character in text)


def _html(table: Table, sheets: list[Sheet], folder: Path) -> str:
    def show(text: Text) -> str:
        plain = _marked(text, html.escape(text.main), "<b>{}</b>", "<u>{}</u>", "<code>{}</code>")
        if plain and text.link:
            # Links are not underlined: that is how the second best is marked.
            look = "color:inherit;text-decoration:none"
            link = html.escape(quote(os.path.relpath(text.link, folder)))
            plain = f'<a href="{link}" style="{look}">{plain}</a>'
        whole = "" if text.style == "code" else ' style="white-space:nowrap"'
        below = f"<br><small>{html.escape(text.below)}</small>" if text.below else ""
        return f"<td{whole}>{plain}{below}</td>"

    parts = [f"<h3>{html.escape(table.experiment.title)}</h3>"]
    for sheet in sheets:
        header = "".join(f"<th>{html.escape(name)}</th>" for name in sheet.header)
        body = "\n".join(f"<tr>{''.join(map(show, row))}</tr>" for row in sheet.rows)
        parts.append(
            f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )
    parts += [f"<p>{html.escape(note)}</p>" for note in table.notes]
    return '<section class="grid">\n' + "\n".join(parts) + "\n</section>\n"
