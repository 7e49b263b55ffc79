"""Pixels of any kind as batches of tensors: arrays, memory maps, tensors on any device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._text import listed

Rows = npt.NDArray[Any] | Tensor


def as_rows(X: Any) -> tuple[Any, tuple[int, ...]]:
    """Pixels as (N, bands), and the shape of their scores: (N,), or (H, W) for an image.

    Tensors on the CPU become arrays, others stay where they are.
    """
    if isinstance(X, Tensor):
        X = X.detach()
        X = X.float() if X.dtype in (torch.bfloat16, torch.float16) else X
        X = X if X.device.type != "cpu" else X.numpy()
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    if len(X.shape) > 3:
        raise ValueError(
            f"pixels must have shape (N, bands), an image (H, W, bands), got {tuple(X.shape)}"
        )
    if len(X.shape) == 3:
        # Not -1, which says nothing where there are no bands.
        return X.reshape(X.shape[0] * X.shape[1], X.shape[2]), tuple(X.shape[:2])
    return X, tuple(X.shape[:1])


def unmasked(X: Any) -> tuple[Any, npt.NDArray[np.bool_] | None]:
    """The pixels of a masked array that no band of is masked, (N, bands), and which those are.

    What is no masked array, or hides nothing, comes back as it is, and None.

    Example:
        >>> unmasked(np.ma.array([[1, 2], [3, 4]], mask=[[False, True], [False, False]]))
        (array([[3, 4]]), array([False,  True]))
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X, None
    mask = np.ma.getmaskarray(X)
    if not mask.any():
        return X.data, None
    known = np.logical_not(mask.any(axis=-1))
    if not known.any():
        bands = np.flatnonzero(mask.reshape(-1, mask.shape[-1]).all(axis=0))
        where = f", in band {listed(bands.tolist())}" if len(bands) else " in some band"
        raise ValueError(f"every pixel is masked{where}: leave such bands out")
    return X.data[known], known


def refuse_masked(values: Any, name: str) -> None:
    """Raise if some values are masked, where leaving them out has no meaning."""
    if np.ma.is_masked(values):
        raise ValueError(
            f"{np.ma.getmaskarray(values).sum()} values of {name} are masked: leave these "
            "samples out, X[~np.ma.getmaskarray(X).any(axis=1)], or fill the values in"
        )


def batches(
    rows: Rows, size: int, device: torch.device, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """Slices of ``rows`` on the device."""
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        if isinstance(part, np.ndarray):
            single = torch.float32 in (dtype, scoring_dtype(part))
            kind = np.float32 if single else np.float64
            # Torch takes neither foreign byte orders nor read-only memory.
            part = torch.from_numpy(np.require(part, kind, ["C", "W"]))
        # First the way, then the precision: single takes half as long to go.
        yield part.to(device).to(dtype)


def scoring_dtype(rows: Rows) -> torch.dtype:
    """Single precision for what comes in single or half precision, else double."""
    real = rows.dtype.is_floating_point if isinstance(rows, Tensor) else rows.dtype.kind == "f"
    return torch.float32 if real and rows.dtype.itemsize <= 4 else torch.float64


class BandError(ValueError):
    """Bands that nothing can be computed from.

    Attributes:
        problem: what is wrong, with ``{bands}`` where their numbers go.
        bands: their numbers, from 0.

    Example:
        >>> str(BandError("no light in {bands}, so drop them", np.array([3, 4])))
        'no light in 3, 4, so drop them: X[..., keep]'
    """

    def __init__(self, problem: str, bands: npt.NDArray[Any]) -> None:
        super().__init__(f"{problem.format(bands=listed(bands.tolist()))}: X[..., keep]")
        self.problem, self.bands = problem, bands


def check_finite(rows: Rows, shape: tuple[int, ...], names: str = "pixels") -> None:
    """Raise naming the pixels, by their places in ``shape``, and bands that are not finite."""
    good = torch.isfinite(rows) if isinstance(rows, Tensor) else np.isfinite(rows)
    if bool(good.all()):
        return
    bad = np.asarray(~good.cpu() if isinstance(good, Tensor) else ~good)
    bands, pixels = np.flatnonzero(bad.any(axis=0)), np.flatnonzero(bad.any(axis=1))
    place = tuple(map(int, np.unravel_index(pixels[0], shape)))
    where = f"{place[0]}" if len(place) == 1 else f"(row, column) {place}"
    problem = f"NaN or infinite values in {len(pixels)} of {len(bad)} {names}, the first at {where}"
    if len(bands) == bad.shape[1]:
        raise ValueError(f"{problem}, and in every band: leave these pixels out, or fill them in")
    raise BandError(
        f"{problem}, in {len(bands)} of {bad.shape[1]} bands: {{bands}}. Leave the pixels out, or "
        "drop the bands from pixels and target alike",
        bands,
    )
