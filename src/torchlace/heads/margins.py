"""Cosine heads with a margin on the true class: ArcFace, CosFace, SphereFace."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from torchlace._checks import check_number
from torchlace.functional import (
    additive_angular_margin,
    additive_cosine_margin,
    multiplicative_angular_margin,
)
from torchlace.heads.cosine import CosineHead, Scale


class _MarginHead(CosineHead):
    """A cosine head with one margin."""

    _margins = (0.0, 2.0)

    def __init__(
        self, in_features: int, num_classes: int, *, margin: float, scale: Scale, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, scale=scale, **options)
        self.margin = check_number("margin", margin, *self._margins, closed=True)

    def extra_repr(self) -> str:
        """With the margin."""
        return f"{super().extra_repr()}, margin={self.margin}"


class ArcFace(_MarginHead):
    """Scaled cosines with an angle added to that of the true class (Deng et al., 2019).

    Paper: Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR
    2019.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: angle in radians, in [0, π/2].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> ArcFace(512, 10)
        ArcFace(512, 10, scale=30, margin=0.05)
    """

    _margins = (0.0, math.pi / 2)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 0.05,
        scale: Scale = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return additive_angular_margin(cosine, self.margin)


class CosFace(_MarginHead):
    """Scaled cosines with a margin subtracted from the true class's (Wang et al., 2018).

    Paper: Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR
    2018.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: in [0, 2].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> CosFace(512, 10)
        CosFace(512, 10, scale=30, margin=0.4)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 0.4,
        scale: Scale = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return additive_cosine_margin(cosine, self.margin)


class SphereFace(_MarginHead):
    """Scaled cosines with the angle to the true class multiplied (Liu et al., 2017).

    Paper: Liu et al., "SphereFace: Deep Hypersphere Embedding for Face Recognition", CVPR 2017.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: factor of the angle, in [1, 10].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> SphereFace(512, 10)
        SphereFace(512, 10, scale=64, margin=1.35)
    """

    _margins = (1.0, 10.0)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 1.35,
        scale: Scale = 64.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return multiplicative_angular_margin(cosine, self.margin)
