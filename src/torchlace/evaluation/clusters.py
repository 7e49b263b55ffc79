"""How well the classes form clusters: validity scores of points and labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchlace.evaluation.silhouette import check_clusters, silhouette_score
from torchlace.evaluation.threads import threads_like_torch

_ROWS = 8192


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
    from torchmetrics.functional.clustering import calinski_harabasz_score

    check_clusters(points, labels)
    # Neither numpy nor sums of squares take the half precisions.
    points = points.detach().to(torch.promote_types(points.dtype, torch.float32))
    labels = labels.to(points.device)
    centred = points - points.mean(0)
    clusters = kmeans(points, len(labels.unique()), seed=seed)
    homogeneity, completeness = agreement(clusters, labels)
    return {
        "silhouette": silhouette_score(points, labels),
        "silhouette_cosine": silhouette_score(points, labels, metric="cosine"),
        "davies_bouldin": davies_bouldin(points, labels),
        "calinski_harabasz": calinski_harabasz_score(centred, labels).item(),
        "kmeans_homogeneity": homogeneity,
        "kmeans_completeness": completeness,
        "fisher": fisher_score(points, labels),
        "effective_rank": effective_rank(points),
    }


def agreement(clusters: Tensor, labels: Tensor) -> tuple[float, float]:
    """Homogeneity and completeness (Rosenberg and Hirschberg, 2007) of any clusters, in [0, 1].

    Homogeneous clusters hold members of one class each; with complete ones, all members of a class
    are in one cluster.

    Example:
        >>> agreement(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 0, 1, 1]))
        (1.0, 0.6666666865348816)
    """
    from torchmetrics.functional.clustering import completeness_score, homogeneity_score

    clusters = clusters.to(labels.device)
    # torch warns where nobody has decided whether sparse tensors are checked.
    with torch.sparse.check_sparse_tensor_invariants():
        scores = [each(clusters, labels) for each in (homogeneity_score, completeness_score)]
    # Rounding puts perfect ones beyond 1.
    homogeneity, completeness = (each.clamp(0, 1).item() for each in scores)
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
    the means, averaged over classes. torchmetrics' function is wrong by orders of magnitude for
    more than 25 classes: the distance of a mean to itself comes out as rounding instead of 0.

    Example:
        >>> davies_bouldin(torch.tensor([[0.0], [2.0], [9.0], [11.0]]), torch.tensor([0, 0, 1, 1]))
        0.2222222222222222
    """
    own, counts, means = _class_means(points, labels)
    spreads = torch.zeros_like(means[:, 0])
    for rest, mine in _residuals(points, own, means):
        spreads.index_add_(0, mine, torch.linalg.vector_norm(rest, dim=1))
    spreads = spreads / counts
    apart = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    if not spreads.any() or not apart.any():
        return 0.0
    ratios = (spreads[:, None] + spreads) / torch.where(apart > 0, apart, torch.inf)
    return ratios.amax(dim=1).mean().item()


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
    own, counts, means = _class_means(points, labels)
    within = means.new_zeros(points.shape[1], points.shape[1])
    for rest, _ in _residuals(points, own, means):
        within.addmm_(rest.mT, rest)
    offsets = (means - counts @ means / counts.sum()) * counts.sqrt()[:, None]
    inverse = torch.linalg.pinv(within, hermitian=True)
    return float(((offsets @ inverse) * offsets).sum())


def effective_rank(points: Tensor) -> float:
    """The effective rank (Roy and Vetterli, 2007) of the centred points, between 1 and their width.

    The exponential of the entropy of the singular values, normalised to a sum of one.

    Example:
        >>> points = torch.eye(4) - 0.25
        >>> round(effective_rank(points), 4)
        3.0
    """
    own = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    _, _, means = _class_means(points, own)
    total = means.new_zeros(points.shape[1], points.shape[1])
    for rest, _ in _residuals(points, own, means):
        total.addmm_(rest.mT, rest)
    values = torch.linalg.eigvalsh(total).clamp_min(0).sqrt()
    share = values / values.sum()
    return float(torch.special.entr(share).sum().exp())


def _class_means(points: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every point's class as 0..C-1, and the counts and means of the classes, in fp64."""
    labels = labels.to(points.device)
    _, own, sizes = labels.unique(return_inverse=True, return_counts=True)
    counts = sizes.double()
    sums = counts.new_zeros(len(counts), points.shape[1])
    for part, mine in zip(points.split(_ROWS), own.split(_ROWS), strict=True):
        sums.index_add_(0, mine, part.double())
    return own, counts, sums / counts[:, None]


def _residuals(points: Tensor, own: Tensor, means: Tensor) -> Iterator[tuple[Tensor, Any]]:
    """Points minus the mean of their class, in fp64, in blocks, and their classes."""
    for part, mine in zip(points.split(_ROWS), own.split(_ROWS), strict=True):
        yield part.double() - means[mine], mine
