"""What commands share: errors as a line, tables, who is told of progress."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

# What stands in a table for a figure that there is none of.
UNKNOWN = "–"
_WIDEST = 1_000_000


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors that users can do something about, as a line instead of a traceback."""
    try:
        yield
    except BrokenPipeError:  # whoever read this has seen enough
        silence_output()
        raise typer.Exit(0) from None
    except Exception as error:
        if not _expected(error):
            raise
        hint = ""
        if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
            hint = "; pip install 'torchlace[train]' brings it"
        typer.echo(f"error: {error}{hint}", err=True)
        raise typer.Exit(1) from None


def silence_output() -> None:
    """Let what is still to be printed go nowhere, where the output can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; columns of numbers to the right, and never cut. Without names there is no header.

    On a terminal it is as wide as that; in a file or pipe every row is a line.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=any(columns))
    for number, column in enumerate(columns):
        cells = [row[number].replace(",", "") for row in rows if row[number] != UNKNOWN]
        if all(cell.replace(".", "", 1).lstrip("-").isdigit() for cell in cells):
            width = max(map(len, [*column.split(), *(row[number] for row in rows)]), default=0)
            table.add_column(column, justify="right", min_width=width)
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST))
    if not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        console.width = needed.maximum
    elif needed.minimum > console.width:
        table.box, table.padding = None, (0, 1, 0, 0)
    # Beside the table rather than of it, whose width it would be broken to.
    console.print(Text(title, "italic"), soft_wrap=True)
    console.print(table)


def number(value: float | None, digits: int = 3) -> str:
    """A figure as text for a table."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


@contextmanager
def watching() -> Iterator[Any]:
    """A watcher of examined runs: lines on the standard error, and a bar where someone looks."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as progress:
        yield _Bar(progress)


class _Lines:
    def message(self, text: str) -> None:
        typer.echo(text, err=True)

    def progress(self, what: str, done: int, total: int) -> None:
        pass


class _Bar:
    def __init__(self, progress: Any) -> None:
        self.bars = progress
        self.tasks: dict[str, Any] = {}

    def message(self, text: str) -> None:
        self.bars.console.print(text, markup=False)

    def progress(self, what: str, done: int, total: int) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.bars.add_task(what, total=total)
        self.bars.update(self.tasks[what], completed=done, total=total)


def _expected(error: Exception) -> bool:
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return True
    from torchlace.training import RunError

    return isinstance(error, RunError)
