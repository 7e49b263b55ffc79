"""How far one setting is ahead of another, and whether that is more than chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchlace.experiments.tables import mean_interval
from torchlace.report.page.gather import Group, Shown


@dataclass(frozen=True)
class Lead:
    """How far one setting is ahead of another on the same test images.

    Attributes:
        points: difference of their accuracies, means over their runs, in percentage points.
        low: where its 95 % interval over the test images begins.
        high: where that interval ends.
        tie: whether the difference may be chance.
        why: what speaks for or against chance, in a sentence.
    """

    points: float
    low: float
    high: float
    tie: bool
    why: str


def find_lead(one: Group, other: Group) -> Lead:
    """Compare two settings image by image, and by how much their runs scatter."""
    difference = 100 * (_right(one) - _right(other))
    low, high = mean_interval(difference)
    tie, why = _judge(one, other, within=low <= 0 <= high)
    return Lead(float(difference.mean()), low, high, tie, why)


def is_baseline(run: Shown) -> bool:
    """Whether a run is of softmax, which the other heads are compared with."""
    return run.config.head == "softmax"


def _right(group: Group) -> NDArray[np.float64]:
    """For each test image, in what share of the runs it was recognised."""
    found = [run.inspection for run in group.runs]
    right = [each.logits.argmax(dim=1).eq(each.labels).numpy() for each in found]
    return np.asarray(np.mean(right, axis=0, dtype=np.float64))


def _judge(one: Group, other: Group, *, within: bool) -> tuple[bool, str]:
    """Whether it is a tie, and why; ``within`` if the interval over the images holds zero."""
    if len(one.runs) == len(other.runs) == 1:
        return _same_images(one, other)
    if min(len(one.runs), len(other.runs)) == 1:
        single = one if len(one.runs) == 1 else other
        return within, f"With one run of {single.label}, how much of that is chance can't be said."
    first, second = one.accuracy, other.accuracy
    error = sum((each.deviation or 0) ** 2 / len(each.values) for each in (first, second)) ** 0.5
    if abs(first.mean - second.mean) <= 2 * error:
        return True, "Their runs scatter as much: take it for a tie."
    if within:
        return True, (
            "That is more than their runs scatter, but other test images could turn it round: "
            "take it for a tie."
        )
    return False, "That is more than their runs scatter."


def _same_images(one: Group, other: Group) -> tuple[bool, str]:
    """McNemar's exact test: a fair coin for every image that only one of the two gets right."""
    from scipy.stats import binomtest

    ahead = _right(one) - _right(other)
    for_one, differing = int((ahead > 0).sum()), int((ahead != 0).sum())
    if not differing:
        return True, "They are right on the very same images."
    chance = float(binomtest(for_one, differing).pvalue)
    where = f"{differing:,}\u00a0image{'s' if differing > 1 else ''}"
    reading = "that can be chance" if chance > 0.05 else "that is hardly chance"
    size = "p\u00a0<\u00a00.001" if chance < 0.001 else f"p\u00a0=\u00a0{chance:.2g}"
    return chance > 0.05, (
        f"On {where} only one of the two is right, {one.label} on {for_one:,}: {reading} ({size})."
    )
