"""How good decisions and probabilities are, from logits and labels, in numbers and in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace._checks import check_count, check_target_shape
from torchlace._text import shown

BINS = 15
# Mean distance of probabilities from what is seen, as fractions.
_TRUSTED, _ROUGH = 0.03, 0.1
# Mistakes that a verdict names.
_NAMED = 3


def classification_scores(
    logits: Tensor, labels: Tensor, temperature: float = 1.0
) -> dict[str, Any]:
    """Accuracy, top-5 accuracy (percent), cross-entropy before and after the temperature.

    Example:
        >>> scores = classification_scores(torch.eye(3) * 9, torch.tensor([0, 1, 1]))
        >>> round(scores["accuracy"], 2), round(scores["top5_accuracy"], 2)
        (66.67, 100.0)
    """
    labels = check_labels(logits, labels)
    # Of equal logits the first decides, as everywhere; topk puts them in any order.
    right = logits.argmax(dim=1) == labels
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    hits = (best == labels[:, None]).any(dim=1) | right
    return {
        "accuracy": 100 * right.double().mean().item(),
        "top5_accuracy": 100 * hits.double().mean().item(),
        "loss": F.cross_entropy(logits, labels).item(),
        "calibrated_loss": F.cross_entropy(logits / temperature, labels).item(),
    }


def class_accuracies(logits: Tensor, labels: Tensor) -> list[float]:
    """Accuracy of every class in percent; NaN for one without samples.

    Example:
        >>> class_accuracies(torch.eye(2), torch.tensor([0, 0]))
        [50.0, nan]
    """
    table = confusion_matrix(logits, labels).double()
    return (100 * table.diagonal() / table.sum(dim=1)).tolist()


def confusion_matrix(logits: Tensor, labels: Tensor) -> Tensor:
    """How many samples of each class (rows) were given each class (columns), (C, C), on the CPU.

    Example:
        >>> confusion_matrix(torch.eye(3), torch.tensor([0, 1, 1]))
        tensor([[1, 0, 0],
                [0, 1, 1],
                [0, 0, 0]])
    """
    labels = check_labels(logits, labels)
    classes = logits.shape[1]
    pairs = labels * classes + logits.argmax(dim=1)
    return torch.bincount(pairs.cpu(), minlength=classes**2).view(classes, classes)


def calibration_scores(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> dict[str, Any]:
    """Brier score, calibration error and reliability bins, before and after the temperature.

    Example:
        >>> scores = calibration_scores(torch.eye(3) * 9, torch.tensor([0, 1, 1]), temperature=9.0)
        >>> scores["ece"] > scores["calibrated_ece"]
        True
    """
    before, after = ((logits.double() / by).softmax(dim=1) for by in (1.0, temperature))
    bins = {
        "before": reliability_bins(before, labels),
        "after": reliability_bins(after, labels),
    }
    return {
        "brier": brier_score(before, labels),
        "calibrated_brier": brier_score(after, labels),
        "ece": expected_calibration_error(bins["before"]),
        "calibrated_ece": expected_calibration_error(bins["after"]),
        "reliability": bins,
    }


def brier_score(probabilities: Tensor, labels: Tensor) -> float:
    """Mean squared distance between probabilities and the truth, summed over classes, in [0, 2].

    Example:
        >>> brier_score(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), torch.tensor([0, 0]))
        0.25
    """
    labels = check_labels(probabilities, labels)
    chances = probabilities.double()
    truth = chances.gather(1, labels[:, None])[:, 0]
    return (chances.square().sum(dim=1) - 2 * truth + 1).mean().item()


def reliability_bins(
    probabilities: Tensor, labels: Tensor, bins: int = BINS
) -> list[dict[str, Any]]:
    """Samples sorted into bins of equal width by the probability of the class they were given.

    Returns:
        For each bin ``lower`` and ``upper`` (a probability on a bound belongs to the bin below it),
        ``count``, and the mean ``confidence`` and ``accuracy`` of its samples as fractions, None
        where there are none.

    Example:
        >>> chances = torch.tensor([[0.9, 0.1], [0.8, 0.2]])
        >>> reliability_bins(chances, torch.tensor([0, 1]), bins=2)[1]["accuracy"]
        0.5
    """
    labels = check_labels(probabilities, labels)
    check_count("bins", bins)
    confidence, chosen = probabilities.double().cpu().max(dim=1)
    both = torch.stack([confidence, (chosen == labels.cpu()).double()])
    index = ((confidence * bins).ceil().long() - 1).clamp(0, bins - 1)
    counts = torch.bincount(index, minlength=bins)
    means = (both.new_zeros(2, bins).index_add_(1, index, both) / counts).tolist()
    return [
        {
            "lower": number / bins,
            "upper": (number + 1) / bins,
            "count": count,
            "confidence": means[0][number] if count else None,
            "accuracy": means[1][number] if count else None,
        }
        for number, count in enumerate(counts.tolist())
    ]


def expected_calibration_error(bins: list[dict[str, Any]]) -> float:
    """Mean difference between confidence and accuracy over :func:`reliability_bins`, by count.

    Example:
        >>> chances = torch.tensor([[0.9, 0.1], [0.7, 0.3]])
        >>> bins = reliability_bins(chances, torch.tensor([0, 0]), bins=2)
        >>> round(expected_calibration_error(bins), 6)
        0.2
    """
    filled = [each for each in bins if each["count"]]
    total = sum(each["count"] for each in filled)
    gaps = (each["count"] * abs(each["confidence"] - each["accuracy"]) for each in filled)
    return float(sum(gaps) / total)


def verdict(scores: dict[str, Any], class_names: Sequence[str]) -> list[str]:
    """How good a run is, whether its probabilities can be trusted, and what it confuses.

    A sentence for each of these; ``scores`` are what evaluation.json says. The last sentence is
    missing if no image is classified wrongly.

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
    from scipy.stats import binomtest

    confusion = scores["confusion"]
    of_each = [sum(row) for row in confusion]
    count = sum(of_each)
    right = sum(row[true] for true, row in enumerate(confusion))
    low, high = binomtest(right, count).proportion_ci(method="wilson")
    sentences = [
        f"right for {scores['accuracy']:.1f} % of {count:,} test images (95 % interval "
        f"{100 * low:.1f} to {100 * high:.1f})",
        _trust(scores["calibrated_ece"], scores["reliability"]["after"], count),
    ]
    names = [shown(name) for name in distinct_names(class_names)]
    said = [
        f"{names[true]} taken for {names[given]} ({many:,} of {of_each[true]:,})"
        for true, given, many in confusions(confusion, _NAMED)
    ]
    return [*sentences, f"most often confused: {', '.join(said)}"] if said else sentences


def confusions(counts: Any, most: int) -> list[tuple[int, int, int]]:
    """The most frequent mistakes: true class, class it was taken for, how often."""
    wrong = np.array(counts)
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def distinct_names(names: Sequence[str]) -> list[str]:
    """Names of classes with the label behind those that several have, so that none hides another.

    Example:
        >>> distinct_names(["crane", "gull", "crane"])
        ['crane (0)', 'gull', 'crane (2)']
    """
    found = list(names)
    while len(counts := Counter(found)) < len(found):
        found = [
            f"{name} ({label})" if counts[name] > 1 else name for label, name in enumerate(found)
        ]
    return found


def check_labels(rows: Tensor, labels: Tensor) -> Tensor:
    """Labels as int64; raises unless ``rows`` is (N, C) and each label is one of its C classes.

    Labels of another shape would otherwise be stretched to fit, and one that no class has would
    count as a mistake.
    """
    if rows.dim() != 2 or not len(rows):
        raise ValueError(
            "expected a row of numbers for each of one or more samples, a column for each class, "
            f"got shape {tuple(rows.shape)}"
        )
    check_target_shape(labels, len(rows))
    classes = rows.shape[1]
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(
            f"labels must lie in 0..{classes - 1}, a column each, got "
            f"{wrong.unique().tolist()[:5]}; do labels start at 0?"
        )
    return labels.long()


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
