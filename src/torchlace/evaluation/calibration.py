"""Whether probabilities mean what they say: Brier score, calibration error, reliability."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchlace._checks import check_count
from torchlace.evaluation.labels import check_labels

BINS = 15


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


def calibration_scores(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> dict[str, Any]:
    """Brier score, calibration error and reliability bins, before and after the temperature.

    Example:
        >>> scores = calibration_scores(torch.eye(3) * 9, torch.tensor([0, 1, 1]), temperature=9.0)
        >>> scores["ece"] > scores["calibrated_ece"]
        True
    """
    before, after = (
        torch.softmax(logits.double() / divisor, dim=1) for divisor in (1.0, temperature)
    )
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
