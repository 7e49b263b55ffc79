"""Stratified splits that come out the same on every machine and with every library version."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._checks import check_count, check_number
from torchlace.data.errors import DataError


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Hold out a fraction of every class.

    A class with two or more samples has at least one in each part; a single sample is not held
    out. The choice depends on labels, fraction and seed alone: it is made by integer arithmetic,
    not by a library's random generator, whose stream may change with its version.

    Args:
        labels: class of every sample, (N,).
        fraction: what to hold out, in (0, 1).
        seed: another seed, another choice.

    Returns:
        Indices of the rest and of the held-out samples, both sorted.

    Example:
        >>> rest, held_out = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 0.25, seed=0)
        >>> rest.tolist(), held_out.tolist()
        ([0, 1, 3, 5, 6, 7], [2, 4])
    """
    check_number("fraction", fraction, 0, 1)
    check_count("seed", seed, low=0)
    if labels.dim() != 1 or labels.is_floating_point():
        raise DataError(
            f"labels must be integers of shape (N,), got {labels.dtype} {tuple(labels.shape)}"
        )
    classes = labels.cpu().numpy()
    _, dense, counts = np.unique(classes, return_inverse=True, return_counts=True)
    order = np.lexsort((scatter(len(classes), seed), dense))
    rank = np.empty(len(classes), np.int64)
    starts = np.cumsum(counts) - counts
    rank[order] = np.arange(len(classes)) - starts[dense[order]]
    held = torch.from_numpy(rank < _held_out(counts, fraction)[dense])
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def scatter(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """A scattered 64-bit number for each of 0..count-1: SplitMix64 of the seed and the index."""
    start = np.uint64(_mix(np.array([seed % 2**64], np.uint64))[0])
    return _mix(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _held_out(counts: npt.NDArray[np.int64], fraction: float) -> npt.NDArray[np.int64]:
    """How many of each class to hold out: by largest remainder, so that the total is right."""
    quota = counts * fraction
    held = np.floor(quota).astype(np.int64)
    missing = int(np.floor(quota.sum() + 0.5)) - int(held.sum())
    held[np.argsort(held - quota, kind="stable")[:missing]] += 1
    bounded: npt.NDArray[np.int64] = np.minimum(np.maximum(held, 1), counts - 1)
    return bounded
