"""Pictures of a run: features and signatures laid out together, kept beside it."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._checks import check_choice, check_count
from torchlace._reporter import Reporter
from torchlace.data import stratified_split
from torchlace.evaluation.inspection import Inspection
from torchlace.evaluation.kept import keep, kept
from torchlace.evaluation.layouts import Method, layout, require_method
from torchlace.runs import Run, seals
from torchlace.runs.files import embedding_file

FORMAT = 1


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
        space: the features as they are, or whitened.
        method: as in :func:`torchlace.evaluation.layout`.
        dim: 2, or 3 for the unit sphere.
        samples: how many images, at most.
        seed: of the draw and of the layout.
        reporter: told of progress.

    Raises:
        ValueError: where ``space`` is ``"whitened"`` and the run has not one whitening.
    """
    check_count("samples", samples, 5)
    points, signatures = _space(inspection, space)
    path = _path(inspection.path, space, method, dim)
    key = {**inspection.key, "format": FORMAT, "samples": samples, "seed": seed}
    reporter = reporter or Reporter()
    before = _kept(inspection.path, path, key, reporter)
    if before is not None:
        return before
    indices = draw(inspection.labels, samples, seed)
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


def check_method(method: Method, runs: Iterable[Path], dim: Literal[2, 3] = 3) -> None:
    """Raise, before features are extracted, where the package that lays them out is missing.

    Runs that are laid out already or unfinished need none.

    Raises:
        ImportError: with what to install.

    Example:
        >>> check_method("pca", [Path("runs/demo")])
    """
    if any(Run(path).finished and not _path(path, "raw", method, dim).exists() for path in runs):
        require_method(method)


def draw(labels: Tensor, samples: int, seed: int) -> Tensor:
    """Indices of about ``samples`` points, as many of each class as its share, ascending.

    Example:
        >>> draw(torch.arange(100) % 2, 10, seed=0).remainder(2).bincount()
        tensor([5, 5])
    """
    if samples >= len(labels):
        return torch.arange(len(labels))
    return stratified_split(labels, samples / len(labels), seed)[1]


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
