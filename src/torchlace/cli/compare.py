"""``torchlace compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace.cli.common import number, plain_errors, print_json, print_table, say
from torchlace.cli.progress import reporting

if TYPE_CHECKING:
    from torchlace.inspection import Inspection

# Name in JSON, heading, digits; "sil." is the silhouette.
_COLUMNS = (
    ("accuracy", "acc. %", 2),
    ("top5_accuracy", "top-5", 2),
    ("calibrated_loss", "NLL", 3),
    ("calibrated_ece", "ECE", 3),
    ("silhouette", "sil. raw", 3),
    ("whitened_silhouette", "sil. white", 3),
    ("epochs", "epochs", 0),
    ("seconds", "seconds", 1),
    ("parameters", "params", 0),
)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare runs in one table: test figures, clusters, cost.

    NLL and ECE are those at the fitted temperature. A run that can't be examined is listed with the
    reason; the exit code is 1 if none can.
    """
    with plain_errors():
        from torchlace.inspection import inspect
        from torchlace.runs import RunError, find_runs

        rows: list[dict[str, Any]] = []
        with reporting() as watcher:
            for run in find_runs(runs):
                try:
                    found = inspect(run, device=device, reporter=watcher, root=root)
                    rows.append({"run": str(run), **_figures(found)})
                except (RunError, ValueError, OSError, ImportError) as error:
                    rows.append({"run": str(run), "error": str(error)})
    if as_json:
        print_json(rows)
    else:
        _show(rows)
    if all("error" in row for row in rows):
        raise typer.Exit(1)


def _figures(found: Inspection) -> dict[str, Any]:
    scores, clusters = found.scores, found.scores["clusters"]
    # Among five classes or fewer, every image is.
    top5 = scores["top5_accuracy"] if len(found.class_names) > 5 else None
    return {
        "accuracy": scores["accuracy"],
        "top5_accuracy": top5,
        **{name: scores[name] for name in ("calibrated_loss", "calibrated_ece")},
        "silhouette": clusters.get("raw", {}).get("silhouette"),
        "whitened_silhouette": clusters.get("whitened", {}).get("silhouette"),
        **{name: found.result.get(name) for name in ("epochs", "seconds", "parameters")},
    }


def _show(rows: list[dict[str, Any]]) -> None:
    ranked = any(row.get("top5_accuracy") is not None for row in rows)
    columns = [each for each in _COLUMNS if ranked or each[0] != "top5_accuracy"]
    notes: list[str] = []
    table = []
    for row in rows:
        name = row["run"]
        if "error" in row:
            notes.append(f"({len(notes) + 1}) {row['error']}")
            name = f"{name} ({len(notes)})"
        table.append([name, *(number(row.get(key), digits) for key, _, digits in columns)])
    print_table("runs on their test images", ["run", *(each[1] for each in columns)], table)
    for note in notes:
        say(note)
