"""What the page's plots are drawn from, as plain values for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchlace.experiments.pictures import encode
from torchlace.report.page.ball import best_view
from torchlace.report.page.examples import Sheet
from torchlace.report.page.gather import COLUMNS, Collection, Group, Shown
from torchlace.report.scores import axis_range
from torchlace.report.style import palette

# Coordinates on the sphere as 16-bit integers: a 65,000th of its diameter is finer than any screen.
UNIT = 32767


def collection_payload(
    number: int, collection: Collection, groups: Sequence[Group], sheet: Sheet | None
) -> dict[str, Any]:
    """Everything that is drawn about the runs on one set of data."""
    sample = np.array(collection.sample, dtype=np.int64)
    # Each as on a light and as on a dark page; no class has the colour of a run.
    count = len(groups) + len(collection.class_names)
    pairs = list(zip(palette(count), palette(count, dark=True), strict=True))
    colours, of_classes = pairs[: len(groups)], pairs[len(groups) :]
    runs = {
        run.name: _run_payload(run, colours[place], turn, sample)
        for place, group in enumerate(groups)
        for turn, run in enumerate(group.runs)
    }
    return {
        "id": f"d{number}",
        "classes": collection.class_names,
        "colours": of_classes,
        "sample": {
            "indices": encode(sample, "<u4"),
            "labels": encode(collection.labels.numpy()[sample], "<u2"),
        },
        "sheet": sheet and {"columns": sheet.columns, "shown": sheet.shown},
        "bars": [
            {
                "name": group.label,
                "colour": colour,
                "mean": group.accuracy.mean,
                "deviation": group.accuracy.deviation,
                "values": group.accuracy.values,
            }
            for group, colour in zip(groups, colours, strict=True)
        ],
        "barsFrom": axis_range([run.accuracy for run in collection.runs])[0],
        "runs": [
            {"id": f"d{number}r{place}", **runs[run.name]}
            for place, run in enumerate(collection.runs)
        ],
    }


def _run_payload(
    run: Shown, colour: tuple[str, str], turn: int, sample: NDArray[np.int64]
) -> dict[str, Any]:
    """Everything that is drawn about one run; ``turn`` is its place in its group."""
    found = run.inspection
    scores = found.scores
    chances = (found.logits[sample].double() / found.temperature).softmax(dim=1)
    top, chosen = chances.max(dim=1)
    columns = ("lower", "upper", "count", "confidence", "accuracy")
    return {
        "name": run.name,
        "colour": colour,
        "turn": turn,
        "history": {name: [_number(row[name]) for row in found.history] for name in COLUMNS},
        "chosen": run.chosen,
        "spheres": {
            space: {
                "points": encode(np.rint(UNIT * each.points), "<i2"),
                "signatures": encode(np.rint(UNIT * each.signatures), "<i2"),
                "eye": best_view(each.points, found.labels.numpy()[each.indices]),
            }
            for space, each in run.spheres.items()
        },
        "predicted": encode(chosen, "<u2"),
        "confidence": encode((100 * top).round(), "u1"),
        "confusion": _sparse(scores["confusion"]),
        "reliability": {
            when: [[_number(each[name]) for name in columns] for each in bins]
            for when, bins in scores["reliability"].items()
        },
        "angles": {name: each["histogram"] for name, each in scores.get("angles", {}).items()},
        "spectrum": [_number(value) for value in scores.get("whitening", {}).get("spectrum", [])],
    }


def _sparse(counts: ArrayLike) -> dict[str, str]:
    """The cells of a matrix that are not zero: with many classes they are few."""
    flat = np.asarray(counts).ravel()
    cells = np.flatnonzero(flat)
    return {"cells": encode(cells, "<u4"), "counts": encode(flat[cells], "<u4")}


def _number(value: float | None) -> float | None:
    """A number to five digits, which is plenty to draw; None for what JSON can't hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
