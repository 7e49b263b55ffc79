"""The size of logits: what a scale of cosines allows, and the temperature that fits samples.

Cosines lie in [-1, 1], so the scale alone bounds every probability.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlace._checks import check_classes, check_count, check_number

_ATTAINABLE = 0.99
_TEMPERATURES = 1e4


def auto_scale(num_classes: int) -> float:
    """The scale that follows from the number of classes: all of them can reach probability .99.

    Example:
        >>> [round(auto_scale(c), 2) for c in (2, 10, 20, 100)]
        [2.3, 6.11, 7.16, 9.1]
    """
    return scale_for(num_classes, _ATTAINABLE)


def adacos_scale(num_classes: int) -> float:
    """AdaCos' fixed scale, √2·ln(max(C - 1, 2)), kept positive for two classes.

    Example:
        >>> [round(adacos_scale(c), 2) for c in (2, 10, 20, 100)]
        [0.98, 3.11, 4.16, 6.5]
    """
    return math.sqrt(2) * math.log(max(check_classes(num_classes) - 1, 2))


def scale_for(num_classes: int, probability: float) -> float:
    """The scale at which the best probability that all classes can reach is this one.

    The inverse of :func:`max_probability`: the same meaning for any number of classes.

    Example:
        >>> [round(scale_for(c, 0.95), 2) for c in (2, 10, 20, 100)]
        [1.47, 4.63, 5.59, 7.46]
    """
    others = check_classes(num_classes) - 1
    check_number("probability", probability, 1 / num_classes, 1)
    return others / num_classes * math.log(probability * others / (1 - probability))


def max_probability(num_classes: int, scale: float) -> float:
    """The largest probability all classes can reach at once under ``scale``·cosine logits.

    Reached where the signatures form a simplex and every feature lies on its own.

    Example:
        >>> [round(max_probability(c, 1.0), 3) for c in (10, 20, 100)]
        [0.252, 0.131, 0.027]
    """
    return math.exp(-loss_floor(num_classes, scale))


def loss_floor(num_classes: int, scale: float) -> float:
    """The smallest cross-entropy that ``scale``·cosine logits can reach on balanced classes.

    Example:
        >>> [round(loss_floor(c, 1.0), 2) for c in (10, 20, 100)]
        [1.38, 2.03, 3.61]
    """
    others = check_count("num_classes", num_classes) - 1
    return math.log1p(others * math.exp(-scale * num_classes / others)) if others else 0.0


def fit_temperature(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The temperature T that minimises the cross-entropy of ``logits / T``.

    To the N samples one more is added whose label is uncertain (it spreads evenly over the classes
    of every sample, in shares of 1/N): otherwise samples that are all classified correctly would
    send T to zero, and a single error on new ones would cost a fortune. The cross-entropy is convex
    in 1/T, so bisection on its slope finds the optimum.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]] * 4)
        >>> fit_temperature(logits, torch.tensor([0, 0, 0, 1]))  # 2/T = ln(3.5 / 1.5)
        tensor(2.3604)
    """
    counted = targets != ignore_index
    scores, labels = logits[counted].double(), targets[counted].long()
    if len(labels) == 0:
        raise ValueError("calibration needs at least one labelled sample, got none")
    scores = scores - scores.amax(dim=1, keepdim=True)
    doubt = 1 / (len(labels) + 1)
    truth = (1 - doubt) * scores.gather(1, labels[:, None])[:, 0] + doubt * scores.mean(dim=1)
    low = scores.new_full((), 1 / _TEMPERATURES).log()
    high = -low
    for _ in range(60):
        middle = (low + high) / 2
        expected = (torch.softmax(scores * middle.exp(), dim=1) * scores).sum(dim=1)
        rising = (expected - truth).mean() > 0
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    flat = (scores == 0).all()
    return torch.where(flat, 1, (-(low + high) / 2).exp()).to(logits.dtype)
