"""Pictures of a run: features and signatures laid out together, and kept beside it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._checks import check_choice, check_count
from torchlace._registry import required
from torchlace._reporter import Reporter
from torchlace.data import stratified_split
from torchlace.evaluation.clusters import threads_like_torch
from torchlace.evaluation.inspection import Inspection
from torchlace.evaluation.kept import keep, kept
from torchlace.functional import unit
from torchlace.runs import Run, seals
from torchlace.runs.files import embedding_file

Method = Literal["tsne", "pca", "umap"]
Progress = Callable[[int, int], object]
Array = npt.NDArray[np.float32]

FORMAT = 1
# Beyond this, all pairs cost more than an approximate index.
_EXACT = 20_000
_ITERATIONS = {"early_exaggeration_iter": 250, "n_iter": 500}
_EVERY = 25


@dataclass(frozen=True)
class Picture:
    """Where test images and class signatures lie in a picture.

    Attributes:
        indices: which images of the test split, (M,), ascending; the same for every run on the same
            data.
        points: (M, dim), fp32; on the unit sphere for three dimensions.
        signatures: (C, dim), laid out together with the points.
    """

    indices: npt.NDArray[np.int64]
    points: npt.NDArray[np.float32]
    signatures: npt.NDArray[np.float32]


def picture(
    inspection: Inspection,
    space: Literal["raw", "whitened"] = "raw",
    method: Method = "tsne",
    dim: Literal[2, 3] = 2,
    samples: int = 5000,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Picture:
    """Lay out a stratified draw of the test images and the signatures, by cosines.

    Args:
        inspection: of the run.
        space: the features as they are, or whitened, where the run has one whitening.
        method: as in :func:`torchlace.evaluation.layout`.
        dim: 2, or 3 for the unit sphere.
        samples: how many images, at most.
        seed: of the draw and of the layout.
        reporter: told of progress.
    """
    check_count("samples", samples, 5)
    points, signatures = _space(inspection, space)
    path = _path(inspection.path, space, method, dim)
    key = {**inspection.key, "format": FORMAT, "samples": samples, "seed": seed}
    reporter = reporter or Reporter()
    before = _kept(inspection.path, path, key, reporter)
    if before is not None:
        return before
    indices = torch.arange(len(inspection.labels))
    if samples < len(indices):  # as many of each class as its share
        indices = stratified_split(inspection.labels, samples / len(indices), seed)[1]
    placed = layout(
        torch.cat([points[indices], signatures]),
        method,
        dim,
        seed,
        sphere=dim == 3,
        progress=lambda done, total: reporter.progress(f"{method}, {space}", done, total),
    )
    found = Picture(indices.numpy(), placed[: len(indices)], placed[len(indices) :])
    keep(path, _packed(found, key), reporter)
    return found


def check_method(method: Method, runs: Iterable[Path]) -> None:
    """Raise, before features are extracted, where the package that lays them out is missing.

    Runs that are on the sphere already or unfinished need none.

    Example:
        >>> check_method("pca", [Path("runs/demo")])
    """
    check_choice("method", method, _METHODS)
    if any(Run(path).finished and not _path(path, "raw", method, 3).exists() for path in runs):
        require_method(method)


def layout(
    points: Tensor | npt.NDArray[Any],
    method: Method = "tsne",
    dim: Literal[2, 3] = 2,
    seed: int = 0,
    sphere: bool = False,
    metric: Literal["cosine", "euclidean"] = "cosine",
    progress: Progress | None = None,
) -> Array:
    """Points laid out, (N, dim), in fp32; the same seed gives the same picture.

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
        package = required(*_PACKAGES[method])
        placed = _METHODS[method](package, rows.numpy(), dim, seed, metric, progress)
    result = torch.from_numpy(np.array(placed, dtype=np.float32))
    if sphere:
        result = unit(result - result.mean(0))
    return result.numpy()


def require_method(method: Method) -> None:
    """Raise unless the package of a method is installed; importing it may take long."""
    module, advice = _PACKAGES[method]
    if find_spec(module) is None:
        raise ImportError(f"{advice} (No module named {module!r})")


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


def _path(run: Path, space: str, method: str, dim: int) -> Path:
    return run / embedding_file(space, method, dim)


def _space(inspection: Inspection, space: str) -> tuple[Tensor, Tensor]:
    if check_choice("space", space, ("raw", "whitened")) == "raw":
        return inspection.features, inspection.raw_signatures
    if inspection.whitened is None:
        raise ValueError(
            f"{inspection.path} has no whitened space: its head ({inspection.config.head}) has not "
            'one background for all classes; use space="raw"'
        )
    return inspection.whitened, inspection.signatures


def _packed(found: Picture, key: dict[str, Any]) -> Iterable[seals.Buffer]:
    content = io.BytesIO()
    text = np.frombuffer(json.dumps(key).encode(), np.uint8)
    np.savez_compressed(content, key=text, **vars(found))
    return seals.sealed(content.getbuffer())


def _kept(run: Path, path: Path, key: dict[str, Any], reporter: Reporter) -> Picture | None:
    content = kept(Run(run), path, reporter)
    try:
        with np.load(io.BytesIO(content or b"")) as parts:
            if json.loads(parts["key"].tobytes()) != key:
                return None
            return Picture(parts["indices"], parts["points"], parts["signatures"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # absent or of another kind: made anew


def _tsne(
    package: Any, rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
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
    _: Any, rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
    from sklearn.decomposition import PCA

    return np.asarray(PCA(dim, svd_solver="full").fit_transform(rows))


def _umap(
    package: Any, rows: Array, dim: int, seed: int, metric: str, progress: Progress | None
) -> npt.NDArray[Any]:
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
