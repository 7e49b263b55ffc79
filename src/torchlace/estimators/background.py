"""A background that is computed, not learned: fixed mean and whitening."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace.backgrounds import Background
from torchlace.estimators.moments import ClassMoments


class Fixed(Background):
    """A given mean and whitening, and optionally a last coordinate that both leave alone.

    Args:
        mean: μ, (d,).
        whitening: W, (d, d).
        constant: what a last, additional coordinate is multiplied by; None: there is none.

    Example:
        >>> background = Fixed(torch.ones(2), 2 * torch.eye(2), constant=3.0)
        >>> background.whiten(torch.tensor([[2.0, 1.0, 1.0]]))
        tensor([[2., 0., 3.]])
    """

    fixed_mean: Tensor
    whitening: Tensor

    def __init__(self, mean: Tensor, whitening: Tensor, constant: float | None = None) -> None:
        if constant is not None:
            mean = torch.cat([mean, mean.new_zeros(1)])
            whitening = torch.block_diag(whitening, whitening.new_full((1, 1), constant))
        super().__init__(len(mean))
        self.register_buffer("fixed_mean", mean)
        self.register_buffer("whitening", whitening)

    def set(self, mean: Tensor, whitening: Tensor) -> None:
        """Another mean and whitening of the same width."""
        width = len(mean)
        self.fixed_mean[:width] = mean
        self.whitening[:width, :width] = whitening

    @property
    def mean(self) -> Tensor:
        """μ, (d,)."""
        return self.fixed_mean

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        return vectors @ self.whitening.to(vectors.dtype).mT


class Spectrum:
    """The covariance within classes, decomposed once so that any shrinkage of it is cheap.

    Example:
        >>> from torchlace.estimators.moments import empty_moments
        >>> moments = empty_moments(1, torch.zeros(1, 2))
        >>> scatter = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
        >>> moments = moments._replace(mass=torch.ones(1).double(), scatter=scatter)
        >>> Spectrum(moments).whitening(0.5)  # of deviations 2 and 1
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]], dtype=torch.float64)
    """

    def __init__(self, moments: ClassMoments) -> None:
        self.mean, self.units = moments.mean, moments.units
        values, vectors = torch.linalg.eigh(moments.within)
        self.values: Tensor = values.clamp_min(0)
        self.vectors: Tensor = vectors

    def axes(self, features: Tensor) -> Tensor:
        """Features along the principal axes, (N, d)."""
        rotation = (self.units[:, None] * self.vectors).to(features.dtype)
        return (features - self.mean.to(features.dtype)) @ rotation

    def lengths(self, shrinkage: float) -> Tensor:
        """What whitening multiplies each principal axis by, (d,)."""
        level = self.values.mean()
        level = torch.where(level > 0, level, 1)
        return torch.rsqrt((1 - shrinkage) * self.values + shrinkage * level)

    def whitening(self, shrinkage: float) -> Tensor:
        """W with WᵀW = Σ⁻¹, (d, d): the one that leaves each feature closest to itself."""
        rotated = self.vectors * self.lengths(shrinkage)
        return torch.mul(rotated @ self.vectors.mT, self.units)
