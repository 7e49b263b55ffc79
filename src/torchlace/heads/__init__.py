"""Classification heads, by class and by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torchlace._checks import check_choice
from torchlace.heads.adacos import AdaCos
from torchlace.heads.base import Head
from torchlace.heads.cosine import CosineHead, NormFace
from torchlace.heads.fold import Folded, Normalize
from torchlace.heads.joint import Joint
from torchlace.heads.lace import LACE
from torchlace.heads.margins import ArcFace, CosFace, SphereFace
from torchlace.heads.softmax import AMC, Center, Softmax
from torchlace.heads.temperature import fit_temperature

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

_REGISTRY: dict[str, Callable[..., Head]] = {
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
}


def names() -> list[str]:
    """Names that :func:`create` knows.

    Example:
        >>> names()[:3]
        ['adacos', 'amc', 'arcface']
    """
    return sorted(_REGISTRY)


def summary(name: str) -> str:
    """What a head is, in a line.

    Example:
        >>> summary("normface")
        'Softmax over scaled cosines, without margin (Wang et al., 2017).'
    """
    factory = _REGISTRY[check_choice("head", name, _REGISTRY)]
    return (inspect.getdoc(factory) or "").partition("\n")[0]


def create(name: str, in_features: int, num_classes: int, **options: Any) -> Head:
    """A head by name.

    Example:
        >>> create("arcface", 512, 10, margin=0.1)
        ArcFace(512, 10, scale=30, margin=0.1)
    """
    factory = _REGISTRY[check_choice("head", name, _REGISTRY)]
    return factory(in_features, num_classes, **options)


def register(name: str, factory: Callable[..., Head]) -> None:
    """Add a head of your own under ``name``; ``factory(in_features, num_classes, **options)``.

    Example:
        >>> register("wide-margin", lambda d, c, **options: CosFace(d, c, margin=0.6, **options))
        >>> create("wide-margin", 512, 10)
        CosFace(512, 10, scale=30, margin=0.6)
        >>> _ = _REGISTRY.pop("wide-margin")
    """
    if name in _REGISTRY:
        raise ValueError(f"a head named {name!r} exists already")
    _REGISTRY[name] = factory
