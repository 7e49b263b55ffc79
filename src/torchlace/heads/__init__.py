"""Classification heads, by class and by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torchlace._registry import Registry
from torchlace.functional import Mixed, fit_temperature
from torchlace.heads.adacos import AdaCos
from torchlace.heads.base import Head
from torchlace.heads.cosine import CosineHead, NormFace
from torchlace.heads.fold import Folded, Normalize
from torchlace.heads.joint import Joint
from torchlace.heads.lace import LACE
from torchlace.heads.margins import ArcFace, CosFace, SphereFace
from torchlace.heads.softmax import AMC, Center, LogitNorm, Softmax

__all__ = [
    "AMC",
    "LACE",
    "AdaCos",
    "ArcFace",
    "Center",
    "CosFace",
    "CosineHead",
    "Folded",
    "Head",
    "Joint",
    "LogitNorm",
    "Mixed",
    "NormFace",
    "Normalize",
    "Softmax",
    "SphereFace",
    "create",
    "fit_temperature",
    "names",
    "register",
    "summary",
]

_MADE = TypeVar("_MADE", bound=Callable[..., Head])
_HEADS: dict[str, Callable[..., Head]] = {
    "softmax": Softmax,
    "lace": LACE,
    "lace-learned": LACE.learned,
    "lace-published": LACE.published,
    "arcface": ArcFace,
    "cosface": CosFace,
    "sphereface": SphereFace,
    "center": Center,
    "amc": AMC,
    "normface": NormFace,
    "adacos": AdaCos,
    "logitnorm": LogitNorm,
}
_REGISTRY = Registry("head", _HEADS)


def names() -> list[str]:
    """Names that :func:`create` knows.

    Example:
        >>> names()[:3]
        ['adacos', 'amc', 'arcface']
    """
    return list(_REGISTRY)


def summary(name: str) -> str:
    """Say in a line what a head is.

    Example:
        >>> summary("normface")
        'Softmax over scaled cosines, without margin (Wang et al., 2017).'
    """
    return _REGISTRY.summary(name)


def create(name: str, in_features: int, num_classes: int, **options: Any) -> Head:
    """Make a head by its name.

    Example:
        >>> create("arcface", 512, 10, margin=0.1)
        ArcFace(512, 10, scale=30, margin=0.1)
    """
    return _REGISTRY[name](in_features, num_classes, **options)


def register(name: str, factory: _MADE | None = None) -> Any:
    """Add a head of your own: a class, or ``factory(in_features, num_classes, **options)``.

    Without a factory it is a decorator.

    Example:
        >>> @register("steep")
        ... class Steep(CosFace):
        ...     '''CosFace with a wide margin.'''
        ...
        ...     def __init__(self, in_features, num_classes, **options):
        ...         super().__init__(in_features, num_classes, margin=0.6, **options)
        >>> create("steep", 512, 10)
        Steep(512, 10, scale=30, margin=0.6)
        >>> summary("steep")
        'CosFace with a wide margin.'
        >>> _REGISTRY.forget("steep")
    """
    return _REGISTRY.register(name, factory)
