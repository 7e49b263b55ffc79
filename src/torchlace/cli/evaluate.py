"""``torchlace evaluate``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace.cli.common import number, plain_errors, print_json, print_table
from torchlace.cli.progress import reporting

if TYPE_CHECKING:
    from torchlace.inspection import Inspection


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Compute anew what an earlier evaluation kept.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Examine a trained run on its test images, and keep the figures beside it."""
    with plain_errors():
        from torchlace.evaluation.labels import distinct_names
        from torchlace.inspection import inspect

        with reporting() as watcher:
            found = inspect(run, device=device, reporter=watcher, refresh=refresh, root=root)
    scores = found.scores
    names = distinct_names(found.class_names)
    classes = dict(zip(names, scores["class_accuracy"], strict=True))
    if as_json:
        print_json({"run": str(run), **scores, "classes": classes})
        return
    title = f"{run}: {len(found.labels):,} test images of {Path(found.config.data).name}"
    print_table(title, ["", "value"], [[name, number(value)] for name, value in _figures(found)])
    spaces = scores["clusters"]
    if spaces:
        rows = [
            [name.replace("_", " "), *(number(space[name]) for space in spaces.values())]
            for name in spaces["raw"]
        ]
        columns = [name.replace("_sphere", ", on the sphere") for name in spaces]
        print_table("clusters of the true classes", ["", *columns], rows)
    rows = [[name, number(value, 2)] for name, value in classes.items()]
    print_table("accuracy of each class", ["class", "%"], rows)


def _figures(found: Inspection) -> Iterator[tuple[str, Any]]:
    scores = found.scores
    yield "accuracy", scores["accuracy"]
    if len(found.class_names) > 5:  # among five or fewer, every class is
        yield "top5 accuracy", scores["top5_accuracy"]
    for name in ("loss", "calibrated_loss", "brier", "calibrated_brier", "ece", "calibrated_ece"):
        yield name.replace("_", " "), scores[name]
    yield "temperature", found.temperature
    for name, angles in scores.get("angles", {}).items():
        yield f"θ to the {name.replace('_', ' ')} signature, degrees", angles["mean"]
    yield "homogeneity of the predictions", scores["predicted_homogeneity"]
    yield "completeness of the predictions", scores["predicted_completeness"]
    if "whitening" in scores:
        whitening = scores["whitening"]
        yield "condition of the background", whitening["condition"]
        yield "effective dimension of the background", whitening["effective_dimension"]
        yield "whitened mean, length", whitening["white_mean_norm"]
        yield "whitened covariance against I", whitening["white_covariance_error"]
