"""Labelled features on a device: copies merged, some held out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from torchlace._checks import check_number
from torchlace._sklearn import Array

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

    def thinned(self, most: int) -> Samples:
        """Some samples of each class, at most about so many in all."""
        parts = math.ceil(len(self.targets) / most)
        return self.take(ranks(self.targets).clamp_min(0) % parts == 0) if parts > 1 else self


def stacked(parts: Sequence[Samples]) -> Samples:
    """Sets of samples as one with a dimension more; zeros fill up the shorter ones.

    Example:
        >>> one = torch.ones(1)
        >>> few, more = (Samples(*(one.repeat(n) for _ in range(4))) for n in (1, 2))
        >>> stacked([few, more]).weights.tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    if len(parts) == 1:
        return Samples(*(part[None] for part in parts[0]))
    return Samples(*(pad_sequence([*part], batch_first=True) for part in zip(*parts, strict=True)))


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


def inverse_deviation(mean: Tensor, deviation: Tensor) -> Tensor:
    """One over the deviation of each feature; 0 where all of it is rounding.

    Example:
        >>> inverse_deviation(torch.tensor([5.0, 5.0]), torch.tensor([2.0, 1e-9]))
        tensor([0.5000, 0.0000])
    """
    varies = deviation > 32 * torch.finfo(mean.dtype).eps * mean.abs()
    return torch.where(varies, 1 / torch.where(varies, deviation, 1), 0)


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
