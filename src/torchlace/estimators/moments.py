"""Class means and the pooled covariance within classes, in closed form or as samples come in."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchlace.estimators.embedding import inverse_deviation
from torchlace.estimators.samples import Samples
from torchlace.functional import ledoit_wolf


class ClassMoments(NamedTuple):
    """What all samples seen say about the background, in fp64."""

    mass: Tensor
    """Sum of the samples' counts in each class, (C,)."""
    means: Tensor
    """Mean of each class, (C, d)."""
    scatter: Tensor
    """Sum over samples of (x - m)(x - m)ᵀ, m the mean of their class, (d, d)."""
    fourth: Tensor
    """Sum of ‖x - m‖⁴ in units of the features' deviations, ()."""
    squares: Tensor
    """Sum of the squared counts, ()."""

    @property
    def mean(self) -> Tensor:
        """Mean of all samples, (d,)."""
        return (self.mass / self.mass.sum()) @ self.means

    @property
    def units(self) -> Tensor:
        """One over the deviation of each feature over all samples, 0 for a constant one, (d,)."""
        share = self.mass / self.mass.sum()
        between = share @ (self.means - self.mean).square()
        within = self.scatter.diagonal() / self.mass.sum()
        return inverse_deviation(self.mean, (within + between).sqrt())

    @property
    def within(self) -> Tensor:
        """The covariance within classes, in units of the features' deviations, (d, d)."""
        units = self.units
        return self.scatter / self.mass.sum() * units[:, None] * units

    @property
    def shrinkage(self) -> float:
        """How far Ledoit and Wolf (2004) move :attr:`within` towards its mean variance."""
        total = self.mass.sum()
        return float(ledoit_wolf(self.within, self.fourth / total, self.squares / total**2))


def empty_moments(classes: int, like: Tensor) -> ClassMoments:
    """Moments of no samples, for features ``like`` these.

    Example:
        >>> empty_moments(3, torch.zeros(8, 2)).means.shape
        torch.Size([3, 2])
    """
    width = like.shape[1]
    shapes = ((classes,), (classes, width), (width, width), (), ())
    return ClassMoments(*(like.new_zeros(shape, dtype=torch.float64) for shape in shapes))


def merge(moments: ClassMoments, samples: Samples) -> ClassMoments:
    """Moments of all samples so far and these, as if they had been seen at once.

    Only the fourth moment is approximate where samples come in parts: it is taken about the class
    means and in the units known by then.

    Example:
        >>> one = torch.ones(4)
        >>> x = torch.tensor([[0.0], [2.0], [7.0], [9.0]])
        >>> samples = Samples(x, torch.tensor([0, 0, 1, 1]), one, one)
        >>> merge(empty_moments(2, x), samples).means
        tensor([[1.],
                [8.]], dtype=torch.float64)
    """
    device = samples.features.device
    mass, means, scatter, fourth, squares = (part.to(device) for part in moments)
    for rows, own, count in samples.chunks():
        added = torch.zeros_like(mass).index_add(0, own, count)
        shifted = rows - means[own]
        step = torch.zeros_like(means).index_add(0, own, shifted * count[:, None])
        step = step / torch.where(added > 0, added, 1)[:, None]
        centred = (shifted - step[own]) * count.sqrt()[:, None]
        total = mass + added
        share = added / torch.where(total > 0, total, 1)
        drift = step * (mass * share).sqrt()[:, None]
        scatter = scatter + centred.mT @ centred + drift.mT @ drift
        means, mass = means + share[:, None] * step, total
    if not torch.isfinite(scatter).all():
        raise ValueError("the features are too large to be squared: rescale them")
    merged = ClassMoments(mass, means, scatter, fourth, squares)
    units = merged.units
    for rows, own, count in samples.chunks():
        lengths = ((rows - means[own]) * units).square().sum(1)
        fourth = fourth + (count * lengths.square()).sum()
    squares = squares + samples.counts.double().square().sum()
    return merged._replace(fourth=fourth, squares=squares)
