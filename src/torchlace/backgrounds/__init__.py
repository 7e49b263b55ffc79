"""Backgrounds: the mean and the whitening that LACE compares in."""

from __future__ import annotations

from typing import Any

from torchlace import _options
from torchlace._checks import check_choice
from torchlace.backgrounds.base import Background, ClasswiseBackground
from torchlace.backgrounds.estimated import Estimated
from torchlace.backgrounds.learned import Learned
from torchlace.backgrounds.learned_one_vs_all import LearnedOneVsAll
from torchlace.backgrounds.low_rank import LearnedLowRank, LowRank
from torchlace.backgrounds.norm import BackgroundNorm
from torchlace.backgrounds.one_vs_all import OneVsAll
from torchlace.backgrounds.one_vs_one import LearnedOneVsOne, OneVsOne
from torchlace.backgrounds.running import Running, advance, refreshing
from torchlace.backgrounds.within import Within

__all__ = [
    "Background",
    "BackgroundNorm",
    "ClasswiseBackground",
    "Estimated",
    "Learned",
    "LearnedLowRank",
    "LearnedOneVsAll",
    "LearnedOneVsOne",
    "LowRank",
    "OneVsAll",
    "OneVsOne",
    "Running",
    "Within",
    "advance",
    "create",
    "names",
    "option_names",
    "refreshing",
]

_REGISTRY: dict[str, type[Background]] = {
    "estimated": Estimated,
    "learned": Learned,
    "low-rank": LowRank,
    "low-rank-learned": LearnedLowRank,
    "one-vs-all": OneVsAll,
    "one-vs-all-learned": LearnedOneVsAll,
    "one-vs-one": OneVsOne,
    "one-vs-one-learned": LearnedOneVsOne,
    "within": Within,
}


def names() -> list[str]:
    """Names that :func:`create` knows.

    Example:
        >>> "estimated" in names()
        True
    """
    return sorted(_REGISTRY)


def option_names(name: str) -> list[str]:
    """Options that :func:`create` takes for a background.

    Example:
        >>> option_names("learned")
        ['covariance', 'device', 'dtype', 'form', 'mean']
    """
    return _options.option_names(_REGISTRY[check_choice("background", name, _REGISTRY)])


def create(name: str, in_features: int, num_classes: int, **options: Any) -> Background:
    """A background by name.

    Example:
        >>> create("low-rank", 2048, 10, rank=16)
        LowRank(2048, rank=16, shrinkage=0.01, decay=0.99, refresh_every=10)
    """
    kind: type[Any] = _REGISTRY[check_choice("background", name, _REGISTRY)]
    _options.check_options(kind, options)
    if issubclass(kind, ClasswiseBackground | Within):
        background: Background = kind(in_features, num_classes, **options)
        return background
    counted = options.get("samples") == "nontarget" or options.get("dimensions") == "classes"
    if counted or options.get("cohesion") is not None:
        options.setdefault("num_classes", num_classes)
    background = kind(in_features, **options)
    return background
