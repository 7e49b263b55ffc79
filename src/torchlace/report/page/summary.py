"""What the figures say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlace.report.page.gather import Collection, Shown
from torchlace.report.page.grouping import Group, Spread
from torchlace.report.page.measures import percent


def summarise(collection: Collection, groups: Sequence[Group]) -> list[str]:
    """Who is right how often, by how much more than the next, and whether that may be chance."""
    best = groups[0]
    score = accuracy(best)
    images = f"{len(collection.labels):,}\u00a0test images of {collection.data}"
    over = f" (mean of {len(best.runs)}\u00a0runs)" if len(best.runs) > 1 else ""
    first = f"{best.label} is right on {percent(score.text(1))} of {images}{over}"
    if len(groups) == 1:
        return [f"{first}.", *_weakness(best.runs[0])]
    second = groups[1]
    gap = score.mean - accuracy(second).mean
    more = "as often as" if round(gap, 1) == 0 else f"{points(gap)} more than"
    first += f", {more} {second.label} ({percent(accuracy(second).text(1))})."
    sentences = [first, *_chance(best, second)]
    if len(groups) > 2:
        others = [accuracy(group).mean for group in groups[2:]]
        names = ", ".join(group.label for group in groups[2:])
        sentences.append(f"Behind them: {names}, {percent(_range(others))}.")
    return [*sentences, *_weakness(best.runs[0])]


def accuracy(group: Group) -> Spread:
    """Test accuracy over the runs of a group, in percent."""
    return Spread([run.accuracy for run in group.runs])


def points(gap: float) -> str:
    """A difference of percentages.

    Example:
        >>> points(1.0).split(), points(0.84).split()
        (['1.0', 'point'], ['0.8', 'points'])
    """
    text = f"{gap:.1f}"
    return f"{text}\u00a0{'point' if text == '1.0' else 'points'}"


def confusions(counts: Any, most: int) -> list[tuple[int, int, int]]:
    """The most frequent mistakes: true class, class it was taken for, how often.

    Example:
        >>> confusions([[5, 2], [1, 7]], 1)
        [(0, 1, 2)]
    """
    wrong = np.array(counts)
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def _weakness(run: Shown) -> list[str]:
    found = confusions(run.inspection.scores["confusion"], 1)
    if not found:
        return [f"{run.name} makes no mistake."]
    true, taken, count = found[0]
    names = run.inspection.class_names
    if count == 1:  # it is the most frequent by accident
        return []
    whose = f"The most frequent mistake of {run.name}"
    return [f"{whose}: {names[true]} taken for {names[taken]}, {count:,}\u00a0times."]


def _chance(best: Group, second: Group) -> list[str]:
    if len(best.runs) == len(second.runs) == 1:
        return [_same_images(best, second)]
    if min(len(best.runs), len(second.runs)) == 1:
        single = best if len(best.runs) == 1 else second
        return [f"With one run of {single.label}, how much of that is chance can't be said."]
    one, other = accuracy(best), accuracy(second)
    error = sum((each.deviation or 0) ** 2 / len(each.values) for each in (one, other)) ** 0.5
    if one.mean - other.mean > 2 * error:
        return ["That is more than their runs scatter."]
    return ["Their runs scatter as much: take it for a tie."]


def _same_images(best: Group, second: Group) -> str:
    """McNemar's exact test: a fair coin for every image that only one of the two gets right."""
    from scipy.stats import binomtest

    one, other = _right(best.runs[0]), _right(second.runs[0])
    for_one, for_other = int((one & ~other).sum()), int((other & ~one).sum())
    differing = for_one + for_other
    if not differing:
        return "They are right on the very same images."
    chance = float(binomtest(for_one, differing).pvalue)
    where = f"{differing:,}\u00a0image{'s' if differing > 1 else ''}"
    reading = "that can be chance" if chance > 0.05 else "that is hardly chance"
    size = "p\u00a0<\u00a00.001" if chance < 0.001 else f"p\u00a0=\u00a0{chance:.2g}"
    return (
        f"On {where} only one of the two is right, {best.label} on {for_one:,}: {reading} ({size})."
    )


def _right(run: Shown) -> np.ndarray[Any, np.dtype[np.bool_]]:
    found = run.inspection
    return np.asarray(found.logits.argmax(dim=1) == found.labels)


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"
