"""A table as text: terminal, Markdown, LaTeX, CSV, a fragment of HTML."""

from __future__ import annotations

import csv
import html
import io
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchlace._checks import check_choice
from torchlace._text import shown
from torchlace.experiments.sheets import Sheet, Text, details_sheet, summary_sheet
from torchlace.experiments.tables import Table

FORMATS = ("terminal", "markdown", "latex", "csv", "html")


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
        return _csv(table)
    if form == "terminal":
        return _terminal(table, width, styled)
    if form == "html":
        return _html(table, Path(folder))
    return {"markdown": _markdown, "latex": _latex}[form](table)


def _terminal(table: Table, width: int, styled: bool) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text as Styled

    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=styled, highlight=False)
    # Not strings: their brackets would be taken for markup, and :cat: for a picture.
    console.print(Styled(shown(table.experiment.title), "bold"))
    for sheet in _sheets(table):
        # Paths would leave no room for numbers: here the numbers are links to them.
        places = [place for place, name in enumerate(sheet.header) if name != "runs"]
        grid = Grid(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        for place in places:
            name = Styled(shown(sheet.header[place]))
            grid.add_column(name, overflow="fold", min_width=1 if place else 9)
        for number, row in enumerate(sheet.rows):
            if number and "column" in sheet.header and row[0] != sheet.rows[number - 1][0]:
                grid.add_section()
            grid.add_row(*(_styled(row[place]) for place in places))
        console.print(grid)
    for note in (*table.notes, "The formats csv, markdown and html name the runs of every number."):
        console.print(Styled(shown(note)))
    return out.getvalue()


def _styled(text: Text) -> Any:
    from rich.style import Style
    from rich.text import Text as Styled

    link = Path(text.link).resolve().as_uri() if text.link else None
    bold, underline = (text.style == name or None for name in ("bold", "underline"))
    styled = Styled(shown(text.main), Style(bold=bold, underline=underline, link=link))
    if text.below:
        styled = Styled.assemble(styled, Styled(f"\n{shown(text.below)}", "dim"))
    return styled


def _markdown(table: Table) -> str:
    def escaped(text: str) -> str:
        return re.sub(r"([|*_`<\\])", r"\\\1", text)

    def show(text: Text) -> str:
        plain = escaped(text.main)
        if plain and text.style:
            plain = {
                "bold": f"**{plain}**",
                "underline": f"<u>{plain}</u>",
                "code": "`" + text.main.replace("|", "\\|") + "`",
            }[text.style]
        return plain + (f"<br>{escaped(text.below)}" if text.below else "")

    parts = [f"**{escaped(table.experiment.title)}**"]
    for sheet in _sheets(table):
        lines = [[show(Text(name)) for name in sheet.header], ["---"] * len(sheet.header)]
        lines += [[show(text) for text in row] for row in sheet.rows]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*parts, *table.notes]) + "\n"


def _latex(table: Table) -> str:
    def show(text: Text) -> str:
        plain = _latex_text(text.main)
        if plain and text.style:
            command = {"bold": "textbf", "underline": "underline", "code": "texttt"}[text.style]
            plain = f"\\{command}{{{plain}}}"
        return plain

    def below(text: Text) -> str:
        return f"{{\\scriptsize {_latex_text(text.below)}}}" if text.below else ""

    def written(row: list[Text]) -> str:
        lines = [" & ".join(map(show, row))]
        if any(text.below for text in row):
            lines.append(" & ".join(map(below, row)))
        return " \\\\\n".join(lines) + r" \\"

    parts = [
        f"% {' '.join(table.experiment.title.split())}\n"
        "% Needs \\usepackage{booktabs}. The second table has a row for every number and is wide:\n"
        "% \\usepackage{graphicx} brings \\resizebox{\\linewidth}{!}{...}, which makes it fit."
    ]
    for sheet in _sheets(table):
        lines = [*map(written, sheet.rows)]
        if any(text.below for row in sheet.rows for text in row):
            lines = "\n\\addlinespace\n".join(lines).split("\n")
        header = " & ".join(_latex_text(name) for name in sheet.header) + r" \\"
        layout = "l" * len(sheet.header)
        parts.append(
            "\n".join(
                [
                    rf"\begin{{tabular}}{{{layout}}}",
                    *(r"\toprule", header, r"\midrule", *lines, r"\bottomrule"),
                    r"\end{tabular}",
                ]
            )
        )
    # A paragraph between the tables, unless they are taken apart.
    first, *rest = parts
    tables = "\n\n\\bigskip\n".join(rest)
    return "\n\n".join([first, tables, *(f"% {note}" for note in table.notes)]) + "\n"


def _html(table: Table, folder: Path) -> str:
    def show(text: Text) -> str:
        plain = html.escape(text.main)
        if plain and text.style:
            tag = {"bold": "b", "underline": "u", "code": "code"}[text.style]
            plain = f"<{tag}>{plain}</{tag}>"
        if plain and text.link:
            # Links are not underlined: that is how the second best is marked.
            look = "color:inherit;text-decoration:none"
            link = html.escape(quote(os.path.relpath(text.link, folder)))
            plain = f'<a href="{link}" style="{look}">{plain}</a>'
        return plain + (f"<br><small>{html.escape(text.below)}</small>" if text.below else "")

    def whole(text: Text) -> str:
        return "" if text.style == "code" else ' style="white-space:nowrap"'

    parts = [f"<h3>{html.escape(table.experiment.title)}</h3>"]
    for sheet in _sheets(table):
        header = "".join(f"<th>{html.escape(name)}</th>" for name in sheet.header)
        rows = (
            "".join(f"<td{whole(text)}>{show(text)}</td>" for text in row) for row in sheet.rows
        )
        body = "\n".join(f"<tr>{row}</tr>" for row in rows)
        parts.append(
            f"<table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )
    parts += [f"<p>{html.escape(note)}</p>" for note in table.notes]
    return '<section class="grid">\n' + "\n".join(parts) + "\n</section>\n"


def _csv(table: Table) -> str:
    experiment = table.experiment
    rows = []
    for column in experiment.columns:
        for row in experiment.rows:
            entry = table.entries[row.name, column.name]
            paper, test = entry.published, entry.test
            low, high = entry.interval or (None, None)
            gain_low, gain_high = entry.gain_interval or (None, None)
            rows.append(
                {
                    "experiment": experiment.name,
                    "row": row.name,
                    "column": column.name,
                    "score": experiment.score(row, column),
                    "n": len(entry.values),
                    "wanted": entry.wanted,
                    "mean": entry.mean,
                    "deviation": entry.deviation,
                    "low": low,
                    "high": high,
                    "rank": entry.rank,
                    "baseline": experiment.baseline,
                    "gain": entry.gain,
                    "gain_low": gain_low,
                    "gain_high": gain_high,
                    "p_holm": test.p if test else None,
                    "pairs": test.pairs if test else None,
                    "published": paper.mean if paper else None,
                    "published_deviation": paper.deviation if paper else None,
                    "from_published": entry.from_published,
                    "seeds": " ".join(map(str, entry.values)),
                    "values": " ".join(map(repr, entry.values.values())),
                    "runs": " ".join(entry.sources),
                    "unfinished": "; ".join(entry.unfinished),
                }
            )
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _sheets(table: Table) -> list[Sheet]:
    return [sheet for sheet in (summary_sheet(table), details_sheet(table)) if sheet.rows]


def _latex_text(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "~": r"\textasciitilde{}"}
    # In LaTeX's own fonts these would be other characters; a bracket would be a length after \\.
    special |= {"<": "$<$", ">": "$>$", "|": "$|$", "[": "{[}"}
    special |= {"^": r"\textasciicircum{}", "–": "--"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    escaped = "".join(special.get(character, character) for character in text)
    return re.sub(r"(?<![\w.)}])-(?=\.?\d)", "$-$", escaped)  # a minus, where a hyphen is shorter
