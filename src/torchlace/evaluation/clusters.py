"""How well the classes form clusters: validity scores of points and labels."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from torchlace.evaluation.silhouette import check_clusters, silhouette_score


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

    check_clusters(points, labels)
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

    Left alone they take all cores: from what runs beside, and from each other, which waiting in a
    loop makes many times slower.

    Example:
        >>> with threads_like_torch():
        ...     pass
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(torch.get_num_threads())
    return limits


def _centred(points: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """The points in fp64, about their mean and of a size that no rounding of a library swallows."""
    rows = points.detach().to(device).double()
    rows = rows - rows.mean(dim=0)
    return rows / rows.abs().amax().clamp_min(torch.finfo(torch.float64).tiny)
