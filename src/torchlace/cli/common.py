"""What commands share: errors as a line, tables, reading a run back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors that users can do something about, as a line instead of a traceback."""
    try:
        yield
    except Exception as error:
        if not _expected(error):
            raise
        hint = ""
        if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
            hint = "; pip install 'torchlace[train]' brings it"
        typer.echo(f"error: {error}{hint}", err=True)
        raise typer.Exit(1) from None


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on the terminal; columns of numbers to the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    for number, column in enumerate(columns):
        cells = [row[number].replace(",", "") for row in rows]
        numbers = all(cell.replace(".", "", 1).lstrip("-").isdigit() for cell in cells)
        table.add_column(column, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def load_run(path: Path, device: str) -> tuple[Any, Any, dict[str, Any], Any]:
    """The run, its trained model in evaluation mode, its facts, and the evaluation transform."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from torchlace.data import Prepare
    from torchlace.training import Run, RunError, make_classifier

    run = Run(path)
    config, facts = run.config(), run.facts()
    if not run.weights_path.exists():
        raise RunError(f"{path} has no weights yet: train it to its first epoch")
    model = make_classifier(
        dataclasses.replace(config, pretrained=False),
        facts["channels"],
        max(facts["size"]),
        len(facts["class_names"]),
    )
    try:
        model.load_state_dict(load_file(run.weights_path))
    except (SafetensorError, RuntimeError) as error:
        raise RunError(
            f"{run.weights_path} is damaged or of another version ({type(error).__name__}); train "
            "the run anew with --overwrite"
        ) from error
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    paper = config.protocol == "paper"
    resize, crop = (256, 224) if paper else (None, None)
    prepare = Prepare(facts["mean"], facts["std"], resize=resize, crop=crop)
    return run, model.to(device).eval(), facts, prepare


def _expected(error: Exception) -> bool:
    if isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        return True
    from torchlace.training import RunError

    return isinstance(error, RunError)
