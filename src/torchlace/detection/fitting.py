"""Fits that succeed as a whole or change nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from sklearn.base import BaseEstimator

Estimator = TypeVar("Estimator", bound=BaseEstimator)


def fit_anew(estimator: Estimator, learn: Callable[[Estimator], None]) -> Estimator:
    """Let ``learn`` fit a copy that knows nothing yet, and become it if there was no error.

    Example:
        >>> from torchlace.detection import RXDetector
        >>> detector = RXDetector().fit([[0.0], [1.0], [2.0]])
        >>> def fail(copied):
        ...     copied.mean_ = None
        ...     raise ValueError("too bad")
        >>> try:
        ...     fit_anew(detector, fail)
        ... except ValueError:
        ...     print(detector.mean_)
        [1.]
    """
    model = copy.copy(estimator)
    for name in [name for name in vars(model) if name.endswith("_")]:
        delattr(model, name)
    learn(model)
    estimator.__dict__ = model.__dict__
    return estimator
