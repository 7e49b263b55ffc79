"""What a scale allows: cosines lie in [-1, 1], so the scale alone bounds every probability."""

from __future__ import annotations

import math

from torchlace._checks import check_classes, check_count, check_number

_ATTAINABLE = 0.99


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
