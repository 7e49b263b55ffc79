"""Pixels of any kind as batches of tensors: arrays, memory maps, tensors on any device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

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
    if len(X.shape) == 3:
        return X.reshape(-1, X.shape[2]), tuple(X.shape[:2])
    return X, tuple(X.shape[:1])


def batches(
    rows: Rows, size: int, device: torch.device, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """Slices of ``rows`` on the device."""
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        if isinstance(part, np.ndarray):
            kind = np.float32 if dtype == torch.float32 else np.float64
            # Torch takes neither foreign byte orders nor read-only memory.
            part = torch.from_numpy(np.require(part, kind, ["C", "W"]))
        yield part.to(device, dtype)


def scoring_dtype(rows: Rows) -> torch.dtype:
    """Single precision for what comes in single or half precision, else double."""
    single = str(rows.dtype).removeprefix("torch.") in ("float32", "float16", "bfloat16")
    return torch.float32 if single else torch.float64


def check_finite(rows: Rows, names: str = "pixels") -> None:
    """Raise naming the pixels and bands that hold NaN or infinite values."""
    good = torch.isfinite(rows) if isinstance(rows, Tensor) else np.isfinite(rows)
    if bool(good.all()):
        return
    bad = np.asarray(~good.cpu() if isinstance(good, Tensor) else ~good)
    bands, pixels = np.flatnonzero(bad.any(axis=0)), np.flatnonzero(bad.any(axis=1))
    raise ValueError(
        f"NaN or infinite values in {len(pixels)} of {len(bad)} {names}, the first at "
        f"{pixels[0]}, in {len(bands)} of {bad.shape[1]} bands: {listed(bands)}. Leave the pixels "
        "out, or drop the bands from pixels and target alike: X[..., keep]"
    )


def listed(numbers: npt.NDArray[Any]) -> str:
    """The first few numbers of many."""
    shown = ", ".join(map(str, numbers[:5].tolist()))
    return f"{shown}, ..." if len(numbers) > 5 else shown


def find_device(name: str, rows: Any = None) -> torch.device:
    """Where to compute: ``auto`` is where a tensor lies, else CUDA if there is any."""
    if name == "auto":
        if isinstance(rows, Tensor):
            return rows.device
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError('there is no CUDA device here: use device="cpu"')
    return device
