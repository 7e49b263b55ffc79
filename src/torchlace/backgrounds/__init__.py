"""Backgrounds: the mean and the whitening that LACE compares in."""

from __future__ import annotations

import inspect
from typing import Any

from torchlace import _values
from torchlace._registry import Registry
from torchlace.backgrounds.base import Background, ClasswiseBackground
from torchlace.backgrounds.clock import advance, refreshing
from torchlace.backgrounds.estimated import Total, Within
from torchlace.backgrounds.learned import Learned, LearnedLowRank
from torchlace.backgrounds.low_rank import LowRank, LowRankTotal
from torchlace.backgrounds.norm import BackgroundNorm
from torchlace.backgrounds.one_vs_all import LearnedOneVsAll, OneVsAll
from torchlace.backgrounds.one_vs_one import LearnedOneVsOne, OneVsOne
from torchlace.backgrounds.running import Running

__all__ = [
    "Background",
    "BackgroundNorm",
    "ClasswiseBackground",
    "Learned",
    "LearnedLowRank",
    "LearnedOneVsAll",
    "LearnedOneVsOne",
    "LowRank",
    "LowRankTotal",
    "OneVsAll",
    "OneVsOne",
    "Running",
    "Total",
    "Within",
    "advance",
    "create",
    "names",
    "option_names",
    "refreshing",
    "register",
    "summary",
]

_BACKGROUNDS: dict[str, type[Background]] = {
    "learned": Learned,
    "low-rank": LowRank,
    "low-rank-total": LowRankTotal,
    "low-rank-learned": LearnedLowRank,
    "one-vs-all": OneVsAll,
    "one-vs-all-learned": LearnedOneVsAll,
    "one-vs-one": OneVsOne,
    "one-vs-one-learned": LearnedOneVsOne,
    "total": Total,
    "within": Within,
}
_REGISTRY = Registry("background", _BACKGROUNDS)
# Options of earlier versions that saved runs may name.
_GONE = {"dimensions", "cohesion", "samples"}


def names() -> list[str]:
    """Names that :func:`create` knows.

    Example:
        >>> "within" in names()
        True
    """
    return list(_REGISTRY)


def summary(name: str) -> str:
    """What a background is, in a line.

    Example:
        >>> summary("total")
        'Running mean and covariance of all features, shrunk and inverted every few steps.'
    """
    return _REGISTRY.summary(name)


def option_names(name: str) -> list[str]:
    """Options that :func:`create` takes for a background.

    Example:
        >>> option_names("learned")
        ['covariance', 'device', 'dtype', 'form', 'mean']
    """
    return _values.option_names(_REGISTRY[name])


def create(name: str, in_features: int, num_classes: int, **options: Any) -> Background:
    """Make a background by its name.

    Example:
        >>> create("low-rank", 2048, 10, rank=16)
        LowRank(2048, 10, ridge=0.1, decay=0.99, refresh_every=10, rank=16)
    """
    kind: type[Any] = _REGISTRY[name]
    for option in sorted(_GONE & set(options)):
        raise TypeError(
            f"the option {option} is gone: the covariance within classes, the default, took its "
            "place; leave it out and train again"
        )
    _values.check_options(kind, options)
    knows_classes = "num_classes" in inspect.signature(kind).parameters
    sizes = (in_features, num_classes) if knows_classes else (in_features,)
    background: Background = kind(*sizes, **options)
    return background


def register(name: str, kind: type[Background] | None = None) -> Any:
    """Add a background of your own: a class made from ``in_features`` or also ``num_classes``.

    Without a class it is a decorator.

    Example:
        >>> class Halved(Background):
        ...     def centre(self, features):
        ...         return features
        ...     def transform(self, vectors):
        ...         return vectors / 2
        >>> _ = register("halved", Halved)
        >>> create("halved", 4, 10)
        Halved(4)
        >>> _REGISTRY.forget("halved")
    """
    return _REGISTRY.register(name, kind)
