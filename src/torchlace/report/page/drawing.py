"""What the page draws: values for its plots, and spheres of features that stand still."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchlace.experiments.pictures import encode
from torchlace.report.page.examples import Sheet
from torchlace.report.page.gather import COLUMNS, Collection, Group, Shown
from torchlace.report.scores import axis_range
from torchlace.report.style import palette, shorten

# Coordinates on the sphere as 16-bit integers: a 65,000th of its diameter is finer than any screen.
UNIT = 32767
Array = NDArray[np.float32]
Colours = tuple[str, str]
"""A colour on a light and on a dark page."""

# From where the page's camera stands, all that rises less towards it lies beyond the horizon.
HORIZON = 0.33
_VIEWS = 2000
# Nearer to a pole, the way that is up turns quickly.
_STEEPEST = 0.85
# Of the sphere in a drawing that reaches from -2000 to 2000.
_RADIUS = 1900
_INWARDS = 150
_MOST_NAMES, _LONGEST_NAME = 20, 16


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


def best_view(points: ArrayLike, labels: ArrayLike) -> list[float]:
    """The direction from which the centres of most classes are seen.

    Of the directions that show as many, it is the one from which most points are seen, every class
    counting the same. A point that faces the eye counts fully, one near the edge in part, and one
    behind not at all.
    """
    # Directions lie evenly along a spiral that leaves out the poles.
    height = np.linspace(-_STEEPEST, _STEEPEST, _VIEWS)
    turn = np.pi * (3 - 5**0.5) * np.arange(_VIEWS)
    flat = np.sqrt(1 - height**2)
    eyes = np.stack([flat * np.cos(turn), flat * np.sin(turn), height], axis=1).astype(np.float32)
    _, places, counts = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
    where = np.asarray(points, dtype=np.float32)
    facing = (class_centres(where, places) @ eyes.T > HORIZON).sum(axis=0)
    most = np.flatnonzero(facing == facing.max())
    seen = np.clip((where @ eyes[most].T - 0.2) / 0.6, 0, 1)
    best = most[((1 / counts[places]).astype(np.float32) @ seen).argmax()]
    return [round(float(value), 3) for value in eyes[best]]


def class_centres(points: ArrayLike, labels: ArrayLike) -> Array:
    """Mean direction of each class that has points, in the order of their labels; (C, 3)."""
    found, places = np.unique(np.asarray(labels), return_inverse=True)
    sums = np.zeros((len(found), 3), np.float32)
    np.add.at(sums, places, np.asarray(points, dtype=np.float32))
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12))


def draw_ball(
    points: ArrayLike,
    signatures: ArrayLike,
    labels: ArrayLike,
    names: Sequence[str],
    colours: Sequence[Colours],
) -> str:
    """The half of a sphere that faces the reader over a pale other half, as the inside of an SVG.

    It is seen from its best view; a page's style gives the classes their colours.
    """
    of_class = np.asarray(labels)
    axes = _axes(best_view(points, of_class))
    dots, crosses = (np.asarray(each, np.float32) @ axes for each in (points, signatures))
    width = 36 if len(dots) > 2000 else 50 if len(dots) > 500 else 72
    centres = class_centres(points, of_class) @ axes
    parts = []
    for front in (False, True):
        parts.append(f'<circle r="{_RADIUS}" class="{"veil" if front else "ground"}"/>')
        for label in np.unique(of_class):
            drawn = dots[(of_class == label) & ((dots[:, 2] > 0) == front)]
            light, dark = colours[label]
            style = f"--light: {light}; --dark: {dark}; stroke-width: {width}"
            path = "".join(f"M{x} {y}h0" for x, y in _places(drawn))
            parts.append(f'<path class="dots" style="{style}" d="{path}"/>' if path else "")
        drawn = crosses[(crosses[:, 2] > 0) == front]
        path = "".join(f"M{x - 60} {y - 60}l120 120m0 -120l-120 120" for x, y in _places(drawn))
        parts += [f'<path class="{name}" d="{path}"/>' for name in ("cross", "cross inner")]
        parts += _names(centres, of_class, names, front)
    return "".join(parts)


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


def _axes(eye: Sequence[float]) -> Array:
    """What is right, up and towards the reader, as columns."""
    towards = np.array(eye) / np.linalg.norm(eye)
    right = np.cross([0, 0, 1], towards)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(towards, right), towards], axis=1).astype(np.float32)


def _places(turned: Array) -> list[list[int]]:
    """Where points are drawn, in the units of the drawing."""
    flat = np.rint(_RADIUS * turned[:, :2] * [1, -1]).astype(int)
    return [[int(x), int(y)] for x, y in flat]


def _names(centres: Array, labels: ArrayLike, names: Sequence[str], front: bool) -> list[str]:
    """The names of the classes of one side, beside them; many would hide the points."""
    if len(centres) > _MOST_NAMES:
        return []
    drawn = []
    found = zip(np.unique(np.asarray(labels)), _places(centres), centres[:, 2], strict=True)
    for label, (x, y), depth in found:
        if (depth > 0) == front:
            name = escape(shorten(names[label], _LONGEST_NAME))
            beside = y + _INWARDS if y < 0 else y - _INWARDS
            drawn.append(f'<text x="{x}" y="{beside}">{name}</text>')
    return drawn
