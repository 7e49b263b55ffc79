"""What the figures of a run say, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchlace._text import shown
from torchlace.evaluation.scores import distinct_names

# Mean distance of probabilities from what is seen, as fractions.
_TRUSTED, _ROUGH = 0.03, 0.1
_SHOWN = 3


def verdict(scores: dict[str, Any], class_names: Sequence[str]) -> list[str]:
    """How good a run is, whether its probabilities can be trusted, and what it confuses.

    Args:
        scores: what evaluation.json says of it.
        class_names: a name for each label.

    Returns:
        A sentence for each of these; the last is missing if no image is classified wrongly.

    Example:
        >>> filled = {"count": 100, "confidence": 0.92, "accuracy": 0.9}
        >>> scores = {"confusion": [[50, 0], [10, 40]], "accuracy": 90.0, "calibrated_ece": 0.02,
        ...           "reliability": {"after": [filled]}}
        >>> for sentence in verdict(scores, ["cat", "dog"]):
        ...     print(sentence)
        right for 90.0 % of 100 test images (95 % interval 82.6 to 94.5)
        its probabilities can be trusted: they are 2.0 points off on average
        most often confused: dog taken for cat (10 of 50)
    """
    confusion = scores["confusion"]
    of_each = [sum(row) for row in confusion]
    count = sum(of_each)
    low, high = _wilson(scores["accuracy"] / 100, count)
    sentences = [
        f"right for {scores['accuracy']:.1f} % of {count:,} test images (95 % interval "
        f"{100 * low:.1f} to {100 * high:.1f})",
        _trust(scores["calibrated_ece"], scores["reliability"]["after"], count),
    ]
    wrong = [
        (row[given], true, given)
        for true, row in enumerate(confusion)
        for given in range(len(row))
        if given != true and row[given]
    ]
    names = [shown(name) for name in distinct_names(class_names)]
    said = [
        f"{names[true]} taken for {names[given]} ({many:,} of {of_each[true]:,})"
        for many, true, given in sorted(wrong, key=lambda each: (-each[0], each[1:]))[:_SHOWN]
    ]
    return [*sentences, f"most often confused: {', '.join(said)}"] if said else sentences


def _trust(off: float, bins: Sequence[dict[str, Any]], count: int) -> str:
    """Whether probabilities can be trusted; so few images, so far off by chance alone."""
    chance = sum(
        math.sqrt(2 / math.pi * each["count"] * each["confidence"] * (1 - each["confidence"]))
        for each in bins
        if each["count"]
    )
    by = f"they are {100 * off:.1f} points off on average"
    if off <= _TRUSTED:
        return f"its probabilities can be trusted: {by}"
    if off <= 1.5 * chance / count:
        few = f"{count:,} images are too few to tell whether its probabilities can be trusted"
        return f"{few}: {by}, which chance could explain"
    if off <= _ROUGH:
        return f"its probabilities are roughly right: {by}"
    return f"its probabilities can't be trusted: {by}"


def _wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share that was seen of so many."""
    z = 1.96
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + (z / count) ** 2 / 4)
    return max(middle - half, 0.0), min(middle + half, 1.0)
