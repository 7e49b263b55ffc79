"""Low rank plus diagonal: backgrounds for 2,048 features and more, linear in the width."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchlace._checks import check_count, check_number
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.estimated import (
    LEAST_SHRINKAGE,
    ClassMomentsBackground,
    MomentsBackground,
)
from torchlace.backgrounds.running import Running
from torchlace.functional import cholesky, empty_class_moments, empty_moments


class _Sketched(Running):
    """Σ ≈ FFᵀ + Ψ with a d × r factor F and a diagonal Ψ, from the variances and Y = ΣΩ.

    Ω is a fixed random d × r matrix, and both are linear in Σ, so they are exact running averages.
    F = Y·chol(ΩᵀY)⁻ᵀ is the Nyström approximation, which never exceeds Σ, and Ψ is what is left of
    the variances, so the diagonal of Σ is exact. A d × d matrix is never formed; the whitening
    costs 4·d·r operations a sample.
    """

    _derived: tuple[str, ...] = ("deviation", "down", "up")
    probe: Tensor
    deviation: Tensor
    down: Tensor
    up: Tensor

    def __init__(self, *sizes: int, rank: int = 64, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.rank = min(check_count("rank", rank), self.in_features)
        tall = (self.in_features, self.rank)
        self._hold(deviation=tall[:1], probe=tall, down=tall, up=tall)

    @property
    def sketch(self) -> Tensor:  # type: ignore[override]  # what others have none of
        """Ω, (d, r)."""
        return self.probe

    def _start(self) -> None:
        # Drawn from a fixed seed: all processes must sketch with the same matrix.
        drawn = torch.randn(self.probe.shape, generator=torch.Generator().manual_seed(0))
        self.probe.copy_(drawn)
        self.deviation.fill_(1)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        names = ("deviation", "down", "up")
        return _whiten(vectors, *(self._in_use(name, vectors.dtype) for name in names))

    def _factors(self, sketch: Tensor, variance: Tensor, ridge: Tensor) -> tuple[Tensor, ...]:
        """What whitens by FFᵀ + Ψ + ridge·I: deviations, and both sides of the low rank."""
        identity = torch.eye(self.rank, dtype=sketch.dtype, device=sketch.device)
        core = self.probe.mT @ sketch
        core = 0.5 * (core + core.mT)
        trace = core.diagonal().sum()
        # Fewer samples than columns leave the core singular: its rounding errors must stay below.
        least = torch.where(trace > 0, 10 * torch.finfo(core.dtype).eps * trace, 1)
        lower = cholesky(core + least * identity)
        factor = torch.linalg.solve_triangular(lower.mT, sketch, upper=True, left=False)
        factor = torch.where(trace > 0, factor, 0)
        rest = (variance - factor.square().sum(1)).clamp_min(0) + ridge
        # W = (I - G (I + Lᵀ)⁻¹ L⁻¹ Gᵀ) Ψ^(-½) with LLᵀ = I + GᵀG satisfies WᵀW = (Ψ + FFᵀ)⁻¹.
        down = factor / rest.sqrt()[:, None]
        lower = cholesky(identity + down.mT @ down)
        upper = (identity + lower).mT
        inner = torch.linalg.solve_triangular(lower, identity, upper=False)
        inner = torch.linalg.solve_triangular(upper, inner, upper=True)
        return rest.sqrt(), down, down @ inner


class LowRank(_Sketched, ClassMomentsBackground):
    """As :class:`Within`, for wide features: the covariance is a low rank and a diagonal.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        rank: r, the columns of the sketch.
        ridge: in units of the signal between the classes.
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> background = LowRank(2048, 10, rank=64)
        >>> background(torch.randn(32, 2048), torch.randint(10, (32,))).shape
        torch.Size([32, 2048])
    """

    _derived = ("deviation", "down", "up", "class_anchors")
    _shown = ("ridge", "decay", "refresh_every", "rank")

    def __init__(self, in_features: int, num_classes: int, **options: Any) -> None:
        super().__init__(in_features, num_classes, **options)
        self._hold_moments(empty_class_moments, num_classes)
        self.reset_parameters()

    def _derive(self) -> tuple[Tensor, ...]:
        if not self.has_covariance:
            return (self._anchored(self._offsets()),)
        within, ridge = self._ridged()
        deviation, down, up = self._factors(within[:, 1:], within[:, 0], ridge)
        unit = self.moments.unit
        anchors = _whiten(self._offsets() / unit, deviation, down, up)
        return deviation * unit, down, up, self._anchored(anchors)


class LowRankTotal(_Sketched, MomentsBackground):
    """As :class:`Total`, for wide features: the covariance is a low rank and a diagonal.

    Args:
        in_features: width of the features.
        rank: r, the columns of the sketch.
        shrinkage: towards the mean variance, in [1e-4, 1].
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> LowRankTotal(2048, rank=64)(torch.randn(32, 2048)).shape
        torch.Size([32, 2048])
    """

    _shown = ("rank", "shrinkage", "decay", "refresh_every")

    def __init__(self, in_features: int, *, shrinkage: float = 0.01, **options: Any) -> None:
        super().__init__(in_features, **options)
        self.shrinkage = check_number("shrinkage", shrinkage, LEAST_SHRINKAGE, 1, closed=True)
        self._hold_moments(empty_moments, 1)
        self.reset_parameters()

    def _derive(self) -> tuple[Tensor, ...]:
        shrinkage, covariance = self._amount(), self.running_covariance[0]
        ridge = shrinkage * covariance[:, 0].mean()
        ridge = torch.where(ridge > 0, ridge, 1)
        variance, sketch = (1 - shrinkage) * covariance[:, 0], (1 - shrinkage) * covariance[:, 1:]
        deviation, down, up = self._factors(sketch, variance, ridge)
        return deviation * self.running_unit, down, up

    @constant_when_compiled
    def _amount(self) -> float:
        return self.shrinkage


def _whiten(vectors: Tensor, deviation: Tensor, down: Tensor, up: Tensor) -> Tensor:
    scaled = vectors / deviation
    flat = scaled.reshape(-1, scaled.shape[-1])
    return torch.addmm(flat, flat @ down, up.mT, alpha=-1).view_as(scaled)
