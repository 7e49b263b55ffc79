"""How well the classes form clusters: validity scores of points and labels.

The silhouette (Rousseeuw, 1987) is exact, computed in blocks on any device, and accumulated in
fp64: the squared distance by way of inner products loses half its digits, which fp32 can't spare
when classes are compact and far apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_feature_shape, check_target_shape
from torchlace.functional import unit

Metric = Literal["euclidean", "cosine"]

# A block of distances takes 8 MiB, the sums to all classes of a group of blocks 128 MiB.
_ROWS, _ENTRIES = 1024, 2**24
# What is below these is rounding: coinciding points then score 0, as they should.
_NOISE = {"euclidean": 1e-7, "cosine": 1e-12}


def cluster_scores(points: Tensor, labels: Tensor, *, seed: int = 0) -> dict[str, float]:
    """All validity scores of labelled points.

    Returns:
        ``silhouette``, ``silhouette_cosine``, ``davies_bouldin``, ``calinski_harabasz``,
        ``kmeans_homogeneity`` and ``kmeans_completeness`` (of :func:`kmeans` with as many clusters
        as there are classes), ``fisher`` and ``effective_rank``.

    Example:
        >>> labels = torch.arange(60) % 3
        >>> points = 9 * torch.eye(3)[labels] + torch.randn(60, 3).clamp(-2, 2)
        >>> cluster_scores(points, labels)["kmeans_homogeneity"]
        1.0
    """
    from sklearn.metrics import calinski_harabasz_score

    _check_clusters(points, labels)
    # numpy does not take the half precisions.
    points = points.detach().to(torch.promote_types(points.dtype, torch.float32))
    labels = labels.to(points.device)
    clusters = kmeans(points, len(labels.unique()), seed=seed)
    homogeneity, completeness = agreement(clusters, labels)
    return {
        "silhouette": silhouette_score(points, labels),
        "silhouette_cosine": silhouette_score(points, labels, metric="cosine"),
        "davies_bouldin": davies_bouldin(points, labels),
        "calinski_harabasz": float(calinski_harabasz_score(_centred(points), labels.cpu())),
        "kmeans_homogeneity": homogeneity,
        "kmeans_completeness": completeness,
        "fisher": fisher_score(points, labels),
        "effective_rank": effective_rank(points),
    }


def silhouette_samples(points: Tensor, labels: Tensor, *, metric: Metric = "euclidean") -> Tensor:
    """The silhouette of every sample, (b - a) / max(a, b), in fp64, (N,).

    a is the mean distance to the other samples of its class and b that to the samples of the
    nearest other class. A sample alone in its class scores 0. The result is that of scikit-learn's
    function of this name.

    Args:
        points: (N, d).
        labels: class of every point, (N,).
        metric: ``"euclidean"``, or ``"cosine"``: one minus the cosine.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
        >>> silhouette_samples(points, torch.tensor([0, 0, 1, 1]))
        tensor([0.8947, 0.8824, 0.8824, 0.8947], dtype=torch.float64)
    """
    check_choice("metric", metric, _NOISE)
    _check_clusters(points, labels)
    _, own, counts = labels.to(points.device).unique(return_inverse=True, return_counts=True)
    order = own.argsort(stable=True)
    extent = 1.0  # the largest distance from the origin
    if metric == "cosine":
        sums = _cosine_sums(points, own, counts, order)
    else:
        # In parts: on a GPU the mean of all in fp64 would hold a copy of all in fp64.
        totals = [part.sum(0, dtype=torch.float64) for part in points.split(_ROWS)]
        origin = torch.stack(totals).sum(0) / len(points)
        sums = _euclidean_sums(points, own, counts, order, origin)
        parts = [(part.double() - origin).square().sum(1).amax() for part in points.split(_ROWS)]
        extent = torch.stack(parts).amax().sqrt().item()
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


def agreement(clusters: Tensor, labels: Tensor) -> tuple[float, float]:
    """Homogeneity and completeness (Rosenberg and Hirschberg, 2007) of any clusters, in [0, 1].

    Homogeneous clusters hold members of one class each; with complete ones, all members of a class
    are in one cluster.

    Example:
        >>> agreement(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 1, 1]))
        (1.0, 0.666666666667)
    """
    from sklearn.metrics import homogeneity_completeness_v_measure

    found = homogeneity_completeness_v_measure(labels.cpu(), clusters.cpu())
    # Rounding puts perfect ones beside 1.
    homogeneity, completeness = (round(float(each), 12) for each in found[:2])
    return homogeneity, completeness


def kmeans(points: Tensor, clusters: int, *, seed: int = 0) -> Tensor:
    """Labels by k-means from one seeded k-means++ start (scikit-learn), (N,), on the CPU.

    Example:
        >>> kmeans(torch.tensor([[0.0], [1.0], [9.0]]), 2).unique().tolist()
        [0, 1]
    """
    from sklearn.cluster import KMeans

    with threads_like_torch():
        found = KMeans(clusters, n_init=1, random_state=seed).fit(points.cpu().numpy())
    return torch.from_numpy(found.labels_).long()


def davies_bouldin(points: Tensor, labels: Tensor) -> float:
    """The Davies–Bouldin score (1979): 0 at best.

    For each class the worst ratio of spreads (mean distances to the class mean) to the distance of
    the means, averaged over classes.

    Example:
        >>> points = torch.tensor([[0.0], [2.0], [9.0], [11.0]])
        >>> round(davies_bouldin(points, torch.tensor([0, 0, 1, 1])), 6)
        0.222222
    """
    from sklearn.metrics import davies_bouldin_score

    return float(davies_bouldin_score(_centred(points), labels.cpu()))


def fisher_score(points: Tensor, labels: Tensor) -> float:
    """Fisher's criterion tr(S_w⁺ S_b): scatter of the class means in units of that within classes.

    Unlike the Calinski–Harabasz score, the ratio of the traces, it is the same in every invertible
    linear map of the points: whitening alone doesn't change it, projection to the sphere does.
    Directions without any scatter within classes don't count (S_w⁺ is the pseudo-inverse).

    Example:
        >>> points = torch.tensor([[0.0], [2.0], [9.0], [11.0]])
        >>> round(fisher_score(points, torch.tensor([0, 0, 1, 1])), 6)
        20.25
    """
    _, own, counts = labels.to(points.device).unique(return_inverse=True, return_counts=True)
    rows = _centred(points, points.device)
    means = rows.new_zeros(len(counts), rows.shape[1]).index_add_(0, own, rows) / counts[:, None]
    residuals = rows - means[own]
    inverse = torch.linalg.pinv(residuals.mT @ residuals, hermitian=True)
    return float(((means @ inverse) * means).sum(dim=1) @ counts.double())


def effective_rank(points: Tensor) -> float:
    """The effective rank (Roy and Vetterli, 2007) of the centred points, between 1 and their width.

    The exponential of the entropy of the singular values, normalised to a sum of one.

    Example:
        >>> points = torch.eye(4) - 0.25
        >>> round(effective_rank(points), 4)
        3.0
    """
    rows = _centred(points, points.device)
    values = torch.linalg.eigvalsh(rows.mT @ rows).clamp_min(0).sqrt()
    return float(torch.special.entr(values / values.sum()).sum().exp())


def threads_like_torch() -> AbstractContextManager[Any]:
    """A context in which other libraries take no more threads than torch does.

    Left alone they take all cores from what runs beside, and from each other, waiting in loops.
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(torch.get_num_threads())
    return limits


def _check_clusters(points: Tensor, labels: Tensor) -> None:
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


def _centred(points: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """The points in fp64, about their mean and of a size that no rounding of a library swallows."""
    rows = points.detach().to(device).double()
    rows = rows - rows.mean(dim=0)
    return rows / rows.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)


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
