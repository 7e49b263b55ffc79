"""``torchlace predict``."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace._text import counted
from torchlace.cli.common import Device, Json, plain_errors, print_json, print_table, say

if TYPE_CHECKING:
    from torch import Tensor

    from torchlace.runs import LoadedRun, Run

# So many classes stand beside an image.
_BESIDE = 3


def predict(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    images: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    top: Annotated[int, typer.Option(min=1, help="Classes to show for each image.")] = 3,
    reject: Annotated[
        float | None,
        typer.Option(
            help="Say where an image is of no known class; the chance that one of a known class is "
            "rejected. Needs the data it was trained on."
        ),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Device = "auto",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without images that can't be read.")
    ] = False,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Classify images with a trained run: top classes and their probabilities."""
    with plain_errors():
        if as_json and as_csv:
            raise ValueError("--json and --csv are two forms of the same output: choose one")
        from torchlace.runs import load_run

        files = _files(images)
        loaded = load_run(run, device)
        if not loaded.run.finished:
            say(_unfinished(loaded.run), err=True)
        guard = None
        if reject is not None:
            from torchlace.evaluation import guard as make_guard

            guard = make_guard(loaded, reject, root=root)
        results = _classify(loaded, files, top, skip_bad, guard)
    if as_json:
        print_json(results)
    elif as_csv:
        _print_csv(results)
    else:
        _print_table(results, f"{counted(len(results), 'image')} by {run}")


def _print_table(results: Sequence[dict[str, Any]], title: str) -> None:
    """Print a row for each image, or where it shows many classes a row for each of these."""
    most = max((len(result["classes"]) for result in results), default=1)
    beside = most if most <= _BESIDE else 1
    # Figures have columns of their own: a narrow terminal breaks names, but no numbers.
    ranks = [f"{rank}." for rank in range(1, most + 1)] if beside == most else ["class"]
    columns = ["image", *(cell for rank in ranks for cell in (rank, "%"))]
    if guarded := any("rejected" in result for result in results):
        title += f", {sum(result['rejected'] for result in results)} of no known class"
        columns.append("of no known class")
    rows = []
    for result in results:
        cells = [(c["class"], f"{100 * c['probability']:.1f}") for c in result["classes"]]
        for start in range(0, len(cells), beside):
            row = ["" if start else result["image"], *chain(*cells[start : start + beside])]
            rows.append(
                [*row, "yes" if not start and result["rejected"] else ""] if guarded else row
            )
    print_table(title, columns, rows)


def _print_csv(results: Sequence[dict[str, Any]]) -> None:
    told = ["rejected"] if results and "rejected" in results[0] else []
    lines = [_csv_line("image", "rank", "class", "probability", *told)]
    lines += [
        _csv_line(
            *(result["image"], rank, each["class"], f"{each['probability']:.6f}"),
            *(str(result[name]).lower() for name in told),
        )
        for result in results
        for rank, each in enumerate(result["classes"], start=1)
    ]
    if sys.stdout.isatty():
        for line in lines:
            say(line)
        return
    # Data for another program: the true names, even where they are not UTF-8 or hold line breaks.
    sys.stdout.flush()
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode(errors="surrogateescape"))
    sys.stdout.buffer.flush()


def _csv_line(*cells: object) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)  # by its own line ends, \r\n, it quotes names with either
    return text.getvalue().removesuffix("\r\n")


def _files(images: Sequence[Path]) -> list[Path]:
    from torchlace.data import image_files

    files: list[Path] = []
    for path in images:
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}")
        files += image_files(path) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"there are no images in {', '.join(map(str, images))}")
    return files


def _classify(
    loaded: LoadedRun, files: Sequence[Path], top: int, skip_bad: bool, guard: Any = None
) -> list[dict[str, Any]]:
    """The top classes of every image, but for those that can't be read."""
    import torch

    from torchlace.evaluation.scores import distinct_names
    from torchlace.models.predict import BATCH
    from torchlace.models.predict import predict as ask

    names = distinct_names(loaded.facts["class_names"])
    results = []
    for start in range(0, len(files), BATCH):
        batch, decoded = _decode(loaded.facts, files[start : start + BATCH], skip_bad)
        if not batch:
            continue
        features, logits = ask(loaded.model, [torch.stack(decoded)], loaded.prepare)
        # By the logits: at a high temperature, rounding makes probabilities equal.
        order = logits.topk(min(top, len(names)), dim=1).indices
        chances = (logits / loaded.model.head.temperature).softmax(dim=1).gather(1, order)
        for path, chance, chosen in zip(batch, chances.tolist(), order.tolist(), strict=True):
            ranked = [
                {"class": names[i], "probability": p} for i, p in zip(chosen, chance, strict=True)
            ]
            results.append({"image": str(path), "classes": ranked})
        if guard is not None:
            strange = (guard.decision_function(features.cpu()) < 0).tolist()
            for result, rejected in zip(results[-len(batch) :], strange, strict=True):
                result["rejected"] = rejected
    return results


def _decode(
    facts: dict[str, Any], files: Sequence[Path], skip_bad: bool
) -> tuple[list[Path], list[Tensor]]:
    """The files that can be read, and their pixels."""
    from torchlace.data import BadImagesError, decode_image

    good, decoded = [], []
    for path in files:
        try:
            pixels = decode_image(path, channels=facts["channels"], size=tuple(facts["size"]))
        except BadImagesError as error:
            if not skip_bad:
                raise
            say(f"left out {error.bad[0]}", err=True)
        else:
            good.append(path)
            decoded.append(pixels)
    return good, decoded


def _unfinished(run: Run) -> str:
    from torchlace.runs.readers import best_epoch

    history = run.epochs()
    weights = "its weights"
    if history:
        weights = f"the weights of epoch {best_epoch(history)}, its best of {len(history)}"
    place = shlex.quote(str(run.path))
    return (
        f"note: {run.path} is not finished: these are predictions of {weights}, and probabilities "
        "are not calibrated yet; to finish it: "
        f"torchlace train --config {shlex.quote(str(run.config_path))} --run {place}"
    )
