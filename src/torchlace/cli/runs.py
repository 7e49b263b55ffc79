"""``evaluate``, ``compare``, ``report`` and ``export``: what is done with trained runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace.cli.common import Device, Json, number, plain_errors, print_json, print_table, say
from torchlace.cli.progress import reporting
from torchlace.runs.files import ONNX

if TYPE_CHECKING:
    from torchlace.evaluation import Inspection, Measure

_APART = {"auroc": "AUROC", "fpr_at_95_recall": "accepted at 95 % recall", "aupr": "AUPR"}

RunPath = Annotated[Path, typer.Argument(help="A run directory.")]
RunPaths = Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")]
Root = Annotated[Path | None, typer.Option(help="Where packs of data lie.")]


def evaluate(
    run: RunPath,
    root: Root = None,
    device: Device = "auto",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Compute anew what an earlier evaluation kept.")
    ] = False,
    unknown: Annotated[
        list[str] | None,
        typer.Option(
            "--unknown", help="A data set of other classes: how well it is told apart; repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Examine a trained run on its test images, and keep the figures beside it."""
    with plain_errors():
        from torchlace.evaluation import inspect, unknown_scores
        from torchlace.evaluation.scores import distinct_names, verdict

        with reporting() as watcher:
            found = inspect(run, device=device, reporter=watcher, refresh=refresh, root=root)
            apart = {}
            if unknown:
                apart = unknown_scores(run, unknown, device=device, reporter=watcher, root=root)
    names = distinct_names(found.class_names)
    classes = dict(zip(names, found.scores["class_accuracy"], strict=True))
    if as_json:
        more = {"unknown": apart} if apart else {}
        print_json({"run": str(run), **found.scores, **more, "classes": classes})
        return
    for sentence in verdict(found.scores, found.class_names):
        say(sentence)
    _show_figures(run, found)
    rows = [[name, number(value, 2)] for name, value in classes.items()]
    print_table("accuracy of each class", ["class", "%"], rows)
    for source in unknown or ():
        rows = [
            [name, *(number(100 * figures[source][key], 2) for key in _APART)]
            for name, figures in sorted(apart.items(), key=lambda each: -each[1][source]["auroc"])
        ]
        print_table(f"told from {source}, %: 50 is chance", ["score", *_APART.values()], rows)


def compare(
    runs: RunPaths, root: Root = None, device: Device = "auto", as_json: Json = False
) -> None:
    """Compare runs in one table: test figures, clusters, cost.

    Log loss (NLL), Brier score and calibration error (ECE) are at the fitted temperature. A run
    that can't be examined is listed with the reason; the exit code is 1 if none can.
    """
    with plain_errors():
        from torchlace.evaluation import inspect, measures
        from torchlace.evaluation.measures import TRAINING, figure
        from torchlace.runs import RunError, find_runs

        compared = [each for each in (*measures(), *TRAINING) if each.short]
        rows: list[dict[str, Any]] = []
        with reporting() as watcher:
            for run in find_runs(runs):
                try:
                    found = inspect(run, device=device, reporter=watcher, root=root)
                    figures = {each.name: figure(found.figures, each.name) for each in compared}
                    rows.append({"run": str(run), **figures})
                except (RunError, ValueError, OSError, ImportError) as error:
                    rows.append({"run": str(run), "error": str(error)})
    if as_json:
        print_json(rows)
    else:
        _show_runs(rows, compared)
    if all("error" in row for row in rows):
        raise typer.Exit(1)


def report(
    runs: RunPaths,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page to write.", dir_okay=False)
    ] = Path("report.html"),
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    samples: Annotated[
        int, typer.Option(min=5, help="Test images on the spheres, at most.")
    ] = 5000,
    method: Annotated[str, typer.Option(help="Of the spheres: tsne, pca or umap")] = "tsne",
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Write one page about runs: comparison, curves, features, mistakes, settings.

    A run that can't be shown is listed with the reason; if none can, no page is written.
    """
    with plain_errors():
        from torchlace.report import write_report

        options: dict[str, Any] = {"method": method, "device": device, "root": root}
        with reporting() as watcher:
            written = write_report(runs, output, samples=samples, reporter=watcher, **options)
    say(str(written.path))
    if open_page:
        typer.launch(written.path.resolve().as_uri())


def export(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="ONNX file to write.", show_default=f"RUN/{ONNX}"),
    ] = None,
    hub: Annotated[
        Path | None,
        typer.Option(help="Write a folder for the Hugging Face Hub instead of an ONNX file."),
    ] = None,
) -> None:
    """Write a trained run as an ONNX file, checked by ONNX Runtime, or for the Hugging Face Hub.

    The ONNX file takes uint8 images of the run's size, (N, C, H, W), and gives scores and
    probabilities. The folder holds weights, settings and a model card with the run's figures.
    """
    with plain_errors():
        if hub is None:
            _export_onnx(run, out or run / ONNX)
        elif out is not None:
            raise ValueError("--out names an ONNX file and --hub a folder: give one of them")
        else:
            from torchlace.hub import save_pretrained

            save_pretrained(run, hub)
            say(f"wrote {hub}: hf upload NAME/{hub.resolve().name} {hub} brings it to the Hub")


def _show_figures(run: Path, found: Inspection) -> None:
    """Print the figures of a run: those of its decisions, then those of its clusters."""
    from torchlace.evaluation import measures
    from torchlace.evaluation.measures import CLUSTERS, SPACES, TRAINING

    title = f"{run}: {len(found.labels):,} test images of {Path(found.config.data).name}"
    single = [each for each in measures() if not each.name.startswith("clusters.")]
    single += [each for each in TRAINING if each.name == "temperature"]
    values = [(each, each.value(found.figures)) for each in single]
    rows = [[m.heading, number(value, m.digits)] for m, value in values if value is not None]
    print_table(title, ["", "value"], rows)
    if spaces := found.scores["clusters"]:
        rows = [
            [each.label, *(number(each.value(space), each.digits) for space in spaces.values())]
            for each in CLUSTERS
        ]
        columns = ["", *(SPACES[name] for name in spaces)]
        print_table("clusters of the true classes", columns, rows)


def _show_runs(rows: Sequence[dict[str, Any]], compared: Sequence[Measure]) -> None:
    """Print a row of figures for each run, then why those without could not be examined."""
    columns = [each for each in compared if any(row.get(each.name) is not None for row in rows)]
    notes: list[str] = []
    table = []
    for row in rows:
        name = row["run"]
        if "error" in row:
            notes.append(f"({len(notes) + 1}) {row['error']}")
            name = f"{name} ({len(notes)})"
        figures = (number(each.shown(row.get(each.name)), each.digits) for each in columns)
        table.append([name, *figures])
    headings = (each.short for each in columns)
    print_table("runs on their test images", ["run", *headings], table, turn=True)
    for note in notes:
        say(note)


def _export_onnx(run: Path, path: Path) -> None:
    if path.suffix != ".onnx":
        raise ValueError(f"--out must end in .onnx, got {path}")
    from torchlace.models import export_onnx
    from torchlace.runs import load_run

    loaded = load_run(run, "cpu")
    loaded.run.result()  # an unfinished run is not calibrated yet
    height, width = loaded.facts["size"]
    names, channels = loaded.facts["class_names"], loaded.facts["channels"]
    shape = (channels, height, width)
    difference = export_onnx(loaded.model, path, shape, prepare=loaded.prepare, class_names=names)
    say(
        f"wrote {path}: uint8 images, (N, {channels}, {height}, {width}), to scores and "
        f"probabilities, (N, {len(names)}); these differ from the run's by {difference:.1g} at most"
    )
