"""What commands share: printing, errors as a line, tables, options spelled and completed."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from torchlace._imports import import_all
from torchlace._text import shown, shown_lines, spelling

# What stands in a table for a figure that there is none of.
UNKNOWN = "–"
# What the shell completes, as plain words: importing those who know them takes seconds.
HEADS = (
    *("adacos", "amc", "arcface", "center", "cosface", "lace", "lace-learned", "lace-published"),
    *("logitnorm", "normface", "softmax", "sphereface"),
)
DATA = ("digits", "fashion_mnist", "cifar10", "svhn", "cifar100", "cifar100-coarse")
BACKBONES = (
    *("small-cnn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121"),
)
_WIDEST = 1_000_000
# The path of a run may be longer than a terminal is wide.
_LONGEST_WORD = 24
IMPORT = "FILE.py or a module that registers heads, data sets and the like; repeatable."
Imports = Annotated[list[str] | None, typer.Option("--import", help=IMPORT)]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_PACKAGE = Path(__file__).parents[1]


def say(text: object, *, err: bool = False) -> None:
    """Print a message, with nothing in it that a terminal would act upon.

    All that commands print comes through this and the functions below: names of files and classes
    come from anywhere. Lines after the first must be indented by two spaces.
    """
    print(shown_lines(text), file=sys.stderr if err else sys.stdout, flush=True)


def say_lines(text: str, *, err: bool = False) -> None:
    """Print the lines of a text, such as a table or a traceback, likewise."""
    print("\n".join(map(shown, text.split("\n"))), file=sys.stderr if err else sys.stdout)


def print_json(value: Any, indent: int | None = None) -> None:
    """Print JSON, with the true names: it writes what isn't ASCII in escapes of its own."""
    print(json.dumps(value, indent=indent), flush=True)


def prepare_output() -> None:
    """Let warnings be printed like all else, and characters that an encoding lacks be escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    text = warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    # Our own speak to whoever typed the command; where in the code they arise says nothing to them.
    ours = category is UserWarning and Path(filename).is_relative_to(_PACKAGE)
    say(f"warning: {message}" if ours else text, err=True)


class Command(TyperCommand):
    """A command whose messages spell settings as its own options."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""

        def spell(name: str, value: object, of: str) -> str | None:
            command = ctx.parent.command.commands.get(of) if of else self
            option = next((each for each in command.params if each.name == name), None)
            if option is None or option.param_type_name != "option":
                return None
            flag = (option.secondary_opts if value is False else option.opts)[0]
            said = flag if value in (None, True, False) else f"{flag} {value}"
            return f"{of} {said}".lstrip()

        with spelling(spell):
            return super().invoke(ctx)


def importing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --import: what it names is imported before the command begins.

    A command that has an argument ``imports`` is given the names too.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters = [*signature.parameters.values()]
    told = "imports" in signature.parameters
    if not told:
        kind = inspect.Parameter.KEYWORD_ONLY
        own = inspect.Parameter("imports", kind, default=None, annotation=Imports)
        parameters.append(own)

    @functools.wraps(command)
    def imported(imports: list[str] | None = None, **given: Any) -> None:
        with plain_errors():
            import_all(imports or ())
        if told:
            given["imports"] = imports
        command(**given)

    imported.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return imported


@contextmanager
def plain_errors() -> Iterator[None]:
    """Print errors that users can do something about as a line instead of a traceback."""
    try:
        yield
    except BrokenPipeError:  # whoever read this has seen enough
        silence_output()
        raise typer.Exit(0) from None
    except Exception as error:
        said = str(error)
        if _out_of_memory(error):
            first = said.partition("\n")[0] or type(error).__name__
            said = f"there is not enough memory ({first}); in training, a smaller --batch-size or "
            said += "--image-size needs less"
        elif not _expected(error):
            raise
        elif isinstance(error, ModuleNotFoundError) and "pip install" not in said:
            said += "; pip install 'torchlace[train]' brings it"
        say(f"error: {said}", err=True)
        raise typer.Exit(1) from None


def silence_output() -> None:
    """Let what is still to be printed go nowhere, where the output can't be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, turn: bool = False
) -> None:
    """Print a table, columns of numbers to the right; without names of columns, no header.

    On a terminal it is as wide as that; in a file or pipe every row is a line. A table that may
    ``turn`` shows its rows as columns where it would be too wide, in several parts if need be.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [list(map(shown, row)) for row in rows]
    table = Table(show_header=any(columns))
    for number, column in enumerate(columns):
        cells = [row[number].replace(",", "") for row in rows if row[number] != UNKNOWN]
        if all(cell.replace(".", "", 1).lstrip("-").isdigit() for cell in cells):
            width = max([_heading(column), *(len(row[number]) for row in rows)])
            table.add_column(Text(column, overflow="fold"), justify="right", min_width=width)
        else:
            table.add_column(column, overflow="fold")
    for row in rows:
        # Not strings: their brackets would be taken for markup, and :cat: for a picture.
        table.add_row(*map(Text, row))
    console = Console()
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST))
    if not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        console.width = needed.maximum
    elif needed.minimum > console.width:
        table.box, table.padding = None, (0, 1, 0, 0)
        bare = console.measure(table, options=console.options.update(max_width=_WIDEST))
        if turn and bare.minimum > console.width:
            _print_turned(title, columns, rows, console.width)
            return
    # Beside the table rather than of it, whose width it would be broken to.
    console.print(Text(shown(title), "italic"), soft_wrap=True)
    console.print(table)


def _print_turned(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> None:
    first = max(map(len, columns)) + 4
    parts: list[list[Sequence[str]]] = [[]]
    for row in rows:
        together = [*parts[-1], row]
        taken = first + sum(3 + max(_heading(n), *map(len, rest)) for n, *rest in together)
        if parts[-1] and taken > width:
            parts.append([])
        parts[-1].append(row)
    for part in parts:
        turned = [list(each) for each in zip(columns, *part, strict=True)]
        print_table(title, turned[0], turned[1:])


def _heading(text: str) -> int:
    """How wide a column is at least by its heading, whose long words are broken."""
    return min(max(map(len, text.split()), default=0), _LONGEST_WORD)


def number(value: float | None, digits: int = 3) -> str:
    """Write a figure for a table."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def among(*words: str) -> Callable[[str], list[str]]:
    """What completes one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def experiments(incomplete: str) -> list[str]:
    """Completes one of the experiments that come with the library."""
    grids = _PACKAGE / "experiments" / "grids"
    return among(*sorted(path.stem for path in grids.glob("*.yaml")))(incomplete)


def _out_of_memory(error: Exception) -> bool:
    """Whether an error says that Python, numpy or torch got no memory."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)


def _expected(error: Exception) -> bool:
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return True
    from torchlace.runs import RunError

    return isinstance(error, RunError)
