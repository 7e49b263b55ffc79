"""Labelled features on a device: copies merged, some held out, their moments."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from torchlace._checks import check_number
from torchlace._sklearn import Array
from torchlace.functional import ledoit_wolf

# Rows to work on at a time, so that fp32 features are never all held in fp64.
ROWS = 16384


class Samples(NamedTuple):
    """Distinct samples, class by class, in a random order within each."""

    features: Tensor
    """(N, d)."""
    targets: Tensor
    """Class indices, ascending, (N,)."""
    counts: Tensor
    """How often a sample counts: the sum of the ``sample_weight`` of its copies, (N,)."""
    weights: Tensor
    """What it weighs in the loss: its count times the weight of its class, (N,)."""

    def take(self, rows: Tensor) -> Samples:
        """Some of the rows, by index or mask."""
        return Samples(*(part[rows] for part in self))

    def chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Features and counts in fp64, with the targets between them, some rows at a time."""
        for start in range(0, len(self.features), ROWS):
            rows = slice(start, start + ROWS)
            yield self.features[rows].double(), self.targets[rows], self.counts[rows].double()

    def size(self) -> float:
        """The effective number of samples: copies and large weights are no new evidence."""
        counts = self.counts.double()
        return float(counts.sum() ** 2 / counts.square().sum())


def merge_copies(
    features: Array, targets: Array, counts: Array, seed: int
) -> tuple[Array, Array, Array]:
    """Each distinct sample once, with the sum of its counts, class by class in random order.

    The order follows from the content of the samples and the seed. So neither the order of the
    rows matters nor whether a sample comes twice or with weight two, and copies of a sample never
    end on both sides of a split.

    Example:
        >>> x, y = np.array([[1.0], [2.0], [1.0]]), np.array([0, 1, 0])
        >>> merge_copies(x, y, np.ones(3), seed=0)
        (array([[1.],
               [2.]]), array([0, 1]), array([2., 1.]))
    """
    salt = seed.to_bytes(8, "little")
    rows = np.ascontiguousarray(features)
    digests = (hashlib.blake2b(row, digest_size=8, key=salt).digest() for row in rows)
    keys = np.frombuffer(b"".join(digests), dtype=np.uint64)
    order = np.lexsort((keys, targets))
    keys, labels = keys[order], targets[order]
    new = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]) | (labels[1:] != labels[:-1])])
    return rows[order[new]], labels[new], np.add.reduceat(counts[order], new)


def ranks(targets: Tensor) -> Tensor:
    """The place of every sample in its class, from 0; -1 for the only one, which can't be split.

    Example:
        >>> ranks(torch.tensor([0, 0, 0, 1]))
        tensor([ 0,  1,  2, -1])
    """
    sizes = torch.bincount(targets)
    places = torch.arange(len(targets), device=targets.device) - (sizes.cumsum(0) - sizes)[targets]
    return torch.where(sizes[targets] > 1, places, -1)


def hold_out(samples: Samples, fraction: float) -> tuple[Samples, Samples]:
    """Samples to train on, and about ``fraction`` of each class to validate on, maybe none."""
    places = ranks(samples.targets)
    held = (places >= 0) & (places % folds(fraction) == 0)
    return samples.take(~held), samples.take(held)


def folds(fraction: float) -> int:
    """The number of parts of which ``fraction`` is one."""
    return max(round(1 / check_number("validation_fraction", fraction, 0, 1)), 2)


class ClassMoments(NamedTuple):
    """Class means and the scatter within classes of all samples seen, in fp64."""

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

    def merge(self, samples: Samples) -> ClassMoments:
        """Moments of all samples so far and these, as if they had been seen at once.

        Only the fourth moment is approximate where samples come in parts: it is taken about the
        class means and in the units known by then.
        """
        device = samples.features.device
        mass, means, scatter, fourth, squares = (part.to(device) for part in self)
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


def empty_moments(classes: int, like: Tensor) -> ClassMoments:
    """Moments of no samples, for features ``like`` these."""
    width = like.shape[1]
    shapes = ((classes,), (classes, width), (width, width), (), ())
    return ClassMoments(*(like.new_zeros(shape, dtype=torch.float64) for shape in shapes))


def inverse_deviation(mean: Tensor, deviation: Tensor) -> Tensor:
    """One over the deviation of each feature; 0 where all of it is rounding.

    Example:
        >>> inverse_deviation(torch.tensor([5.0, 5.0]), torch.tensor([2.0, 1e-9]))
        tensor([0.5000, 0.0000])
    """
    varies = deviation > 32 * torch.finfo(mean.dtype).eps * mean.abs()
    return torch.where(varies, 1 / torch.where(varies, deviation, 1), 0)


class Spectrum:
    """The covariance within classes, decomposed once so that any shrinkage of it is cheap."""

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


class Standardize(nn.Module):
    """Features less their mean, over their deviation; one that never varied becomes zero.

    Mean and deviation are those of all samples that were observed.
    """

    mass: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mass", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.zeros(width))

    def reset(self) -> None:
        """Forget all samples."""
        for buffer in self.buffers():
            buffer.zero_()

    def observe(self, samples: Samples) -> None:
        """Merge in more samples, exactly."""
        for features, _, counts in samples.chunks():
            mass, mean, deviation = (buffer.double() for buffer in self.buffers())
            count = counts.sum()
            step = counts @ (features - mean) / count
            variance = counts @ (features - mean - step).square() / count
            share = count / (mass + count)
            variance = (1 - share) * deviation.square() + share * variance
            variance = variance + share * (1 - share) * step.square()
            if not torch.isfinite(variance).all():
                raise ValueError("the features are too large to be squared: rescale them")
            self.deviation.copy_(variance.sqrt())
            self.mean.copy_(mean + share * step)
            self.mass.copy_(mass + count)

    def forward(self, features: Tensor) -> Tensor:
        """Standardised features, (N, d)."""
        return (features - self.mean) * inverse_deviation(self.mean, self.deviation)
