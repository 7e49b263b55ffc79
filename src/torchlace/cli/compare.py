"""``torchlace compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace.cli.common import number, plain_errors, print_json, print_table, say
from torchlace.cli.progress import reporting

if TYPE_CHECKING:
    from torchlace.evaluation import Measure


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare runs in one table: test figures, clusters, cost.

    Log loss (NLL), Brier score and calibration error (ECE) are at the fitted temperature. A run
    that can't be examined is listed with the reason; the exit code is 1 if none can.
    """
    with plain_errors():
        from torchlace.evaluation import inspect
        from torchlace.runs import RunError, find_runs

        rows: list[dict[str, Any]] = []
        with reporting() as watcher:
            for run in find_runs(runs):
                try:
                    found = inspect(run, device=device, reporter=watcher, root=root)
                    rows.append({"run": str(run), **_figures(found.figures)})
                except (RunError, ValueError, OSError, ImportError) as error:
                    rows.append({"run": str(run), "error": str(error)})
    if as_json:
        print_json(rows)
    else:
        _show(rows)
    if all("error" in row for row in rows):
        raise typer.Exit(1)


def _figures(figures: dict[str, Any]) -> dict[str, float | None]:
    from torchlace.evaluation.measures import figure

    return {each.name: figure(figures, each.name) for each in _compared()}


def _compared() -> list[Measure]:
    from torchlace.evaluation.measures import TRAINING, measures

    return [each for each in (*measures(), *TRAINING) if each.short]


def _show(rows: list[dict[str, Any]]) -> None:
    columns = [each for each in _compared() if any(row.get(each.name) is not None for row in rows)]
    notes: list[str] = []
    table = []
    for row in rows:
        name = row["run"]
        if "error" in row:
            notes.append(f"({len(notes) + 1}) {row['error']}")
            name = f"{name} ({len(notes)})"
        values = (each.shown(row.get(each.name)) for each in columns)
        table.append([name, *map(number, values, (each.digits for each in columns))])
    headings = (each.short for each in columns)
    print_table("runs on their test images", ["run", *headings], table, turn=True)
    for note in notes:
        say(note)
