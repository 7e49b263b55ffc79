"""Points laid out in two or three dimensions, to be looked at."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._checks import check_choice
from torchlace.evaluation.clusters import threads_like_torch
from torchlace.functional import unit

Method = Literal["tsne", "pca", "umap"]
Progress = Callable[[int, int], object]
Array = npt.NDArray[np.float32]

# Beyond this, all pairs cost more than an approximate index.
_EXACT = 20_000
_ITERATIONS = {"early_exaggeration_iter": 250, "n_iter": 500}
_EVERY = 25


def layout(
    points: Tensor | npt.NDArray[Any],
    method: Method = "tsne",
    dim: Literal[2, 3] = 2,
    seed: int = 0,
    sphere: bool = False,
    metric: Literal["cosine", "euclidean"] = "cosine",
    progress: Progress | None = None,
) -> Array:
    """Lay points out in two or three dimensions; the same seed gives the same picture.

    Args:
        points: (N, d), with N of at least 5.
        method: ``"tsne"`` (openTSNE: perplexity 30, 250 iterations exaggerated and 500 not, from
            the principal components), ``"pca"``, or ``"umap"`` (umap-learn).
        dim: 2 or 3.
        seed: of everything random.
        sphere: project the result to the unit circle or sphere around its mean.
        metric: ``"cosine"`` or ``"euclidean"``; principal components see unit vectors in the first
            case.
        progress: called with iterations done and in all, by t-SNE.

    Returns:
        (N, dim), fp32.

    Example:
        >>> layout(torch.eye(6), method="pca").shape
        (6, 2)
    """
    check_choice("method", method, _METHODS)
    check_choice("metric", metric, ("cosine", "euclidean"))
    rows = torch.as_tensor(points).detach().cpu().float()
    _check_points(rows, dim)
    if metric == "cosine":
        rows = unit(rows)
    with threads_like_torch():
        placed = _METHODS[method](rows.numpy(), dim, seed, metric, progress)
    result = torch.from_numpy(np.array(placed, dtype=np.float32))
    if sphere:
        result = unit(result - result.mean(0))
    return result.numpy()


def require_method(method: Method) -> None:
    """Raise unless the package of a method is installed; it is not imported, which may take long.

    Raises:
        ImportError: with what to install.

    Example:
        >>> require_method("pca")
    """
    check_choice("method", method, _METHODS)
    module, advice = _PACKAGES[method]
    if find_spec(module) is None:
        raise ImportError(f"{advice} (No module named {module!r})")


def _tsne(
    rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
    package = _package("tsne")
    calls = 0

    def step(iteration: int, error: float, placed: Any) -> None:
        nonlocal calls
        calls += 1
        if progress is not None:
            progress(calls * _EVERY, sum(_ITERATIONS.values()))

    options: dict[str, Any] = {"neighbors": "exact"} if len(rows) <= _EXACT else {}
    if dim == 3:  # interpolation, its default for many points, exists in the plane only
        options["negative_gradient_method"] = "bh"
    if progress is not None:
        options |= {"callbacks": step, "callbacks_every_iters": _EVERY}
    tsne = package.TSNE(
        dim,
        perplexity=min(30, (len(rows) - 1) / 3),
        metric=metric,
        random_state=seed,
        n_jobs=torch.get_num_threads(),
        **_ITERATIONS,
        **options,
    )
    return np.asarray(tsne.fit(rows))


def _pca(
    rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
    _package("pca")
    from sklearn.decomposition import PCA

    return np.asarray(PCA(dim, svd_solver="full").fit_transform(rows))


def _umap(
    rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
    package = _package("umap")
    # Only one thread gives the same picture twice.
    umap = package.UMAP(
        n_components=dim,
        n_neighbors=min(15, len(rows) - 1),
        metric=metric,
        random_state=seed,
        n_jobs=1,
        init="spectral" if len(rows) > 2 * dim + 10 else "random",
    )
    return np.asarray(umap.fit_transform(rows))


_METHODS: dict[str, Callable[..., npt.NDArray[Any]]] = {"tsne": _tsne, "pca": _pca, "umap": _umap}

_PACKAGES = {
    "tsne": ("openTSNE", "t-SNE needs openTSNE: pip install 'torchlace[report]'"),
    "pca": ("sklearn", "PCA needs scikit-learn: pip install 'torchlace[train]'"),
    "umap": ("umap", "UMAP needs umap-learn: pip install umap-learn"),
}


def _package(method: Method) -> Any:
    module, advice = _PACKAGES[method]
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{advice} ({error})") from error


def _check_points(rows: Tensor, dim: int) -> None:
    if dim not in (2, 3):
        raise ValueError(f"dim must be 2 or 3, got {dim!r}")
    if rows.dim() != 2 or len(rows) < 5 or rows.shape[1] < dim:
        raise ValueError(
            f"points must have shape (N, d) with N of at least 5 and d of at least {dim}, got "
            f"{tuple(rows.shape)}"
        )
    if not torch.isfinite(rows).all():
        raise ValueError("points hold NaN or infinite values: leave those rows out")
