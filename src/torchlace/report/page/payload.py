"""What the page's plots are drawn from, as plain values for JSON."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchlace.report.colours import palette
from torchlace.report.figures.comparison import axis_range
from torchlace.report.page.camera import best_view
from torchlace.report.page.gather import COLUMNS, Collection, Shown
from torchlace.report.page.grouping import Group
from torchlace.report.page.sprites import Sheet
from torchlace.report.page.summary import accuracy

# Coordinates on the sphere as 16-bit integers: a 65,000th of its diameter is finer than any screen.
UNIT = 32767


def collection_payload(
    number: int, collection: Collection, groups: Sequence[Group], sheet: Sheet | None
) -> dict[str, Any]:
    """Everything that is drawn about the runs on one set of data."""
    sample = np.array(collection.sample, dtype=np.int64)
    colours = palette(len(groups))
    runs = {
        run.name: run_payload(run, colours[place], turn, sample)
        for place, group in enumerate(groups)
        for turn, run in enumerate(group.runs)
    }
    return {
        "id": f"d{number}",
        "classes": collection.class_names,
        "colours": palette(len(collection.class_names)),
        "sample": {
            "indices": packed(sample, "<u4"),
            "labels": packed(collection.labels.numpy()[sample], "<u2"),
        },
        "sheet": sheet and {"columns": sheet.columns, "shown": sheet.shown},
        "bars": [
            {
                "name": group.label,
                "colour": colour,
                "mean": accuracy(group).mean,
                "deviation": accuracy(group).deviation,
                "values": accuracy(group).values,
            }
            for group, colour in zip(groups, colours, strict=True)
        ],
        "barsFrom": axis_range([run.accuracy for run in collection.runs])[0],
        "runs": [
            {"id": f"d{number}r{place}", **runs[run.name]}
            for place, run in enumerate(collection.runs)
        ],
    }


def run_payload(run: Shown, colour: str, turn: int, sample: NDArray[np.int64]) -> dict[str, Any]:
    """Everything that is drawn about one run."""
    found = run.inspection
    scores = found.scores
    chances = (found.logits[sample].double() / found.temperature).softmax(dim=1)
    top, chosen = chances.max(dim=1)
    return {
        "name": run.name,
        "colour": colour,
        "turn": turn,
        "history": {name: [_number(row[name]) for row in found.history] for name in COLUMNS},
        "chosen": run.chosen,
        "spheres": {
            space: {
                "points": packed(np.rint(UNIT * each.points), "<i2"),
                "signatures": packed(np.rint(UNIT * each.signatures), "<i2"),
                "eye": best_view(each.points, found.labels.numpy()[each.indices]),
            }
            for space, each in run.spheres.items()
        },
        "predicted": packed(chosen, "<u2"),
        "confidence": packed((100 * top).round(), "u1"),
        "confusion": _sparse(scores["confusion"]),
        "reliability": {
            when: [
                [
                    _number(each[name])
                    for name in ("lower", "upper", "count", "confidence", "accuracy")
                ]
                for each in bins
            ]
            for when, bins in scores["reliability"].items()
        },
        "angles": {name: each["histogram"] for name, each in scores.get("angles", {}).items()},
        "spectrum": [_number(value) for value in scores.get("whitening", {}).get("spectrum", [])],
    }


def packed(values: ArrayLike, kind: str) -> str:
    """Numbers as base64 of this numpy type.

    Example:
        >>> packed([1, 2], "<u2")
        'AQACAA=='
    """
    return base64.b64encode(np.asarray(values).astype(kind).tobytes()).decode()


def _sparse(counts: ArrayLike) -> dict[str, str]:
    """Only what is not zero: with many classes that is little of the whole."""
    flat = np.asarray(counts).ravel()
    cells = np.flatnonzero(flat)
    return {"cells": packed(cells, "<u4"), "counts": packed(flat[cells], "<u4")}


def _number(value: float | None) -> float | None:
    """Five digits are plenty to draw; JSON knows neither NaN nor infinity."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
