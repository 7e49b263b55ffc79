"""Labelled features on a device, and how some of them are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray[Any, Any]

# Rows to convert at a time, so that fp32 features are never all held in fp64.
_ROWS = 16384


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
        for start in range(0, len(self.features), _ROWS):
            rows = slice(start, start + _ROWS)
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
    return max(round(1 / fraction), 2)
