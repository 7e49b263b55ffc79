"""All that the closed form needs of its samples, of constant size: counts, means, one scatter."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torchlace.estimators.samples import Samples, inverse_deviation

# Of the mean variance: what is added to the diagonal is looked for from here upwards.
_LEAST_ODDS, _STEPS = 2.0**-24, 36
# What a degree of freedom counts: more than one, or few samples are too often followed closely.
_COST = 1.4


class Sums(NamedTuple):
    """Class means and the scatter about them of all samples seen, in fp64.

    Several sets of samples have theirs in tensors with one dimension more, in front.
    """

    mass: Tensor
    """Sum of the samples' counts in each class, (C,)."""
    squares: Tensor
    """Sum of the squared counts in each class, (C,)."""
    means: Tensor
    """Mean of each class, (C, d)."""
    scatter: Tensor
    """Sum over samples of (x - m)(x - m)ᵀ, m the mean of their class, (d, d)."""
    spread: Tensor
    """The mass of the samples in :attr:`scatter`: of all, and of classes since forgotten, ()."""

    @property
    def mean(self) -> Tensor:
        """Mean of all samples, (d,)."""
        return self.over_classes(self.means)

    @property
    def units(self) -> Tensor:
        """One over the deviation of each feature over all samples, 0 for a constant one, (d,)."""
        mean = self.mean
        within = self.scatter.diagonal(dim1=-2, dim2=-1) / self.spread[..., None]
        between = self.over_classes((self.means - mean[..., None, :]).square())
        return inverse_deviation(mean, (within + between).sqrt())

    @property
    def within(self) -> Tensor:
        """The covariance within classes, in units of the features' deviations, (d, d)."""
        units = self.units
        return self.scatter / self.spread[..., None, None] * units[..., None] * units[..., None, :]

    @property
    def offsets(self) -> Tensor:
        """Class means less the mean of all, in units, (C, d); zero for a class never seen."""
        centred = self.means - self.mean[..., None, :]
        return centred * self.units[..., None, :] * (self.mass > 0)[..., None]

    def over_classes(self, values: Tensor) -> Tensor:
        """The mean over all samples of what each class has, (C, d): (d,)."""
        shares = self.mass / self.mass.sum(-1, keepdim=True)
        return (shares[..., None, :] @ values)[..., 0, :]

    @property
    def size(self) -> float:
        """The effective number of samples: copies and large weights are no new evidence."""
        return float(self.mass.sum() ** 2 / self.squares.sum())

    def join(self, other: Sums) -> Sums:
        """The sums of both, as if all samples had come at once.

        Example:
            >>> from torchlace.estimators.samples import Samples
            >>> one = torch.ones(1)
            >>> low, high = (sums_of(Samples(one[:, None] * x, torch.tensor([0]), one, one), 1)
            ...              for x in (2.0, 6.0))
            >>> both = low.join(high)
            >>> both.means.item(), round(both.scatter.item(), 6)
            (4.0, 8.0)
        """
        mass = self.mass + other.mass
        share = other.mass / torch.where(mass > 0, mass, 1)
        step = other.means - self.means
        drift = step * (self.mass * share).sqrt()[:, None]
        return Sums(
            mass,
            self.squares + other.squares,
            self.means + share[:, None] * step,
            self.scatter + other.scatter + drift.mT @ drift,
            self.spread + other.spread,
        )

    def each(self, change: Callable[[Tensor], Tensor]) -> Sums:
        """The same with another choice of classes; the scatter stays."""
        return self._replace(
            mass=change(self.mass), squares=change(self.squares), means=change(self.means)
        )


def sums_of(samples: Samples, classes: int) -> Sums:
    """The sums of these samples, in two passes over them."""
    like = samples.features.new_zeros(0, dtype=torch.float64)
    width = samples.features.shape[1]
    mass, squares = like.new_zeros(classes), like.new_zeros(classes)
    means, scatter = like.new_zeros(classes, width), like.new_zeros(width, width)
    for rows, own, count in samples.chunks():
        mass.index_add_(0, own, count)
        squares.index_add_(0, own, count.square())
        means.index_add_(0, own, rows * count[:, None])
    means /= torch.where(mass > 0, mass, 1)[:, None]
    for rows, own, count in samples.chunks():
        centred = (rows - means[own]) * count.sqrt()[:, None]
        scatter.addmm_(centred.mT, centred)
    if not torch.isfinite(scatter).all():
        raise ValueError("the features are too large to be squared: rescale them")
    return Sums(mass, squares, means, scatter, mass.sum())


def advised_odds(sums: Sums) -> float:
    """The ridge on the covariance within classes, in units of its mean variance.

    Whitening within classes tells them apart as regression on the class indicators does (Hastie,
    Tibshirani and Buja, 1994), with the same ridge. This is the ridge with the lowest generalised
    cross-validation of that regression (Golub, Heath and Wahba, 1979; with the factor of Kim and
    Gu, 2004), which the sums determine.

    Example:
        >>> from torchlace.estimators.samples import Samples
        >>> torch.manual_seed(0)
        <torch._C.Generator object at ...>
        >>> y, noise = torch.arange(60) % 2, torch.randn(60, 40)
        >>> few = Samples(noise + y[:, None], y, torch.ones(60), torch.ones(60))
        >>> advised_odds(sums_of(few, 2)) > 0.1
        True
    """
    within, offsets = sums.within, sums.offsets
    level = float(within.diagonal().mean())
    if level <= 0:
        return 1.0
    shares = sums.mass / sums.mass.sum()
    values, vectors = torch.linalg.eigh(within + (offsets * shares[:, None]).mT @ offsets)
    values = values.clamp_min(0)
    slopes = (shares[:, None] * offsets @ vectors).square().sum(0)
    steps = torch.arange(_STEPS, dtype=torch.float64, device=values.device)
    odds = _LEAST_ODDS * 2**steps
    ridged = values + odds[:, None] * level
    residual = 1 - shares.square().sum() - (slopes * (2 * ridged - values) / ridged**2).sum(1)
    freedom = 1 - _COST * (1 + (values / ridged).sum(1)) / sums.size
    score = torch.where(freedom > 0, residual / freedom.square(), torch.inf)
    return float(odds[score.argmin()])
