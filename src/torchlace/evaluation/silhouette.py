"""The silhouette (Rousseeuw, 1987), exact, in blocks, on any device.

All is accumulated in fp64: the squared distance by way of inner products loses half its digits,
which fp32 can't spare when classes are compact and far apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_feature_shape, check_target_shape
from torchlace.functional import unit

Metric = Literal["euclidean", "cosine"]

# A block of distances takes 8 MiB, the sums to all classes of a group of blocks 128 MiB.
_ROWS, _ENTRIES = 1024, 2**24
# What is below these is rounding: coinciding points then score 0, as they should.
_NOISE = {"euclidean": 1e-7, "cosine": 1e-12}


def silhouette_samples(points: Tensor, labels: Tensor, *, metric: Metric = "euclidean") -> Tensor:
    """The silhouette of every sample: (b - a) / max(a, b).

    a is the mean distance to the other samples of its class and b that to the samples of the
    nearest other class. A sample alone in its class scores 0. The result is that of scikit-learn's
    function of this name.

    Args:
        points: (N, d).
        labels: class of every point, (N,).
        metric: ``"euclidean"``, or ``"cosine"``: one minus the cosine.

    Returns:
        (N,), fp64, on the device of ``points``.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> silhouette_samples(points, torch.tensor([0, 0, 1, 1]))
        tensor([0.8947, 0.8824, 0.8824, 0.8947], dtype=torch.float64)
    """
    check_choice("metric", metric, _NOISE)
    check_clusters(points, labels)
    _, own, counts = labels.to(points.device).unique(return_inverse=True, return_counts=True)
    order = own.argsort(stable=True)
    extent = 1.0
    if metric == "cosine":
        sums = _cosine_sums(points, own, counts, order)
    else:
        # In parts: on a GPU the mean of all in fp64 would hold a copy of all in fp64.
        totals = [part.sum(0, dtype=torch.float64) for part in points.split(_ROWS)]
        origin = torch.stack(totals).sum(0) / len(points)
        sums = _euclidean_sums(points, own, counts, order, origin)
        extent = _extent(points, origin)
    parts = [
        _scores(part, own[rows], counts, _NOISE[metric] * extent)
        for part, rows in zip(sums, order.split(_ROWS), strict=True)
    ]
    scores = torch.empty_like(own, dtype=torch.float64)
    scores[order] = torch.cat(parts)
    return scores


def silhouette_score(points: Tensor, labels: Tensor, *, metric: Metric = "euclidean") -> float:
    """The mean of :func:`silhouette_samples`, in [-1, 1]; compact, separate classes score high.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> round(silhouette_score(points, torch.tensor([0, 0, 1, 1])), 4)
        0.8885
    """
    return silhouette_samples(points, labels, metric=metric).mean().item()


def check_clusters(points: Tensor, labels: Tensor) -> None:
    """Raise unless these are finite points of two or more classes, one with several members."""
    width = points.shape[1] if isinstance(points, Tensor) and points.dim() == 2 else 0
    check_feature_shape(points, width)
    check_target_shape(labels, len(points))
    if not torch.stack([torch.isfinite(part).all() for part in points.split(_ROWS)]).all():
        raise ValueError("points hold NaN or infinite values: leave those rows out")
    classes = len(labels.unique())
    if not 1 < classes < len(points):
        raise ValueError(
            f"clusters are compared for two or more classes of which one has several members; "
            f"got {len(points)} points of {classes} classes"
        )


def _euclidean_sums(
    points: Tensor, own: Tensor, counts: Tensor, order: Tensor, origin: Tensor
) -> Iterator[Tensor]:
    """Summed distances to every class, (rows, C), for one block of ``order`` after the other.

    Blocks whose sums fit in memory together share their distances, of which each serves both sides.
    """
    blocks = [_Block(points, own, rows, origin) for rows in order.split(_ROWS)]
    together = max(1, _ENTRIES // (_ROWS * len(counts)))
    for start in range(0, len(blocks), together):
        group = range(start, min(start + together, len(blocks)))
        sums = {n: origin.new_zeros(len(blocks[n].rows), len(counts)) for n in group}
        for row in group:
            left, squares, members = blocks[row].content()
            for column, other in enumerate(blocks):
                if column in group and column < row:
                    continue
                right, others, classes = other.content()
                distances = torch.addmm(others, left, right.mT, alpha=-2)
                distances.add_(squares[:, None]).clamp_min_(0).sqrt_()
                if row == column:
                    distances.fill_diagonal_(0)
                sums[row][:, other.classes] += distances @ classes
                if row < column in group:
                    sums[column][:, blocks[row].classes] += distances.mT @ members
        yield from sums.values()


class _Block:
    """Some points, sorted by class, lifted to fp64 when they are needed."""

    def __init__(self, points: Tensor, own: Tensor, rows: Tensor, origin: Tensor) -> None:
        self.points, self.rows, self.origin = points, rows, origin
        first, last = own[rows[[0, -1]]].tolist()
        self.classes = slice(first, last + 1)
        self.labels = own[rows] - first

    def content(self) -> tuple[Tensor, Tensor, Tensor]:
        """Points from the origin, their squared lengths, and their membership in ``classes``."""
        centred = self.points[self.rows].double() - self.origin
        count = self.classes.stop - self.classes.start
        members = self.labels[:, None] == torch.arange(count, device=self.labels.device)
        return centred, centred.square().sum(1), members.double()


def _cosine_sums(points: Tensor, own: Tensor, counts: Tensor, order: Tensor) -> Iterator[Tensor]:
    """The same of cosine distances: Σ(1 - u·v) = n - u·Σv needs no pairs at all."""
    totals = points.new_zeros(len(counts), points.shape[1], dtype=torch.float64)
    for rows in order.split(_ROWS):
        totals.index_add_(0, own[rows], unit(points[rows].double()))
    for rows in order.split(_ROWS):
        directions = unit(points[rows].double())
        sums = counts - directions @ totals.mT
        # A zero vector has cosine 0 to itself too, but its own distance is none.
        itself = 1 - directions.square().sum(1, keepdim=True)
        yield sums.scatter_add_(1, own[rows, None], -itself).clamp_min_(0)


def _scores(sums: Tensor, own: Tensor, counts: Tensor, least: float) -> Tensor:
    mine = own[:, None]
    others = (counts[own] - 1).clamp_min(1)
    within = sums.gather(1, mine)[:, 0] / others
    between = (sums / counts).scatter_(1, mine, torch.inf).amin(1)
    larger = torch.maximum(within, between)
    defined = (counts[own] > 1) & (larger > least)
    return torch.where(defined, (between - within) / torch.where(defined, larger, 1), 0)


def _extent(points: Tensor, origin: Tensor) -> float:
    """The largest distance from the origin."""
    parts = [(part.double() - origin).square().sum(1).amax() for part in points.split(_ROWS)]
    return torch.stack(parts).amax().sqrt().item()
