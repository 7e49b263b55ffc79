"""What detectors take: arrays, masked arrays, tensors, cubes in files; checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import _check_n_features, validate_data
from torch import Tensor

from torchlace._checks import check_count
from torchlace._files import require_memory
from torchlace._text import setting
from torchlace.detection.background import STREAMED, strips_of
from torchlace.detection.cubes import Cube
from torchlace.detection.pixels import Pixels, is_lazy
from torchlace.detection.scoring import gaps_in_window
from torchlace.detection.window import check_window

if TYPE_CHECKING:
    from torchlace.detection.base import Detector


def read_pixels(detector: Detector, X: Any, reset: bool) -> Pixels:
    """Checked pixels."""
    if is_lazy(X) and detector.window is not None:
        raise ValueError(
            f"{setting('window')} needs rows of neighbouring chunks: give an array in memory, or a "
            "cube in a file"
        )
    if isinstance(X, Cube) or is_lazy(X):
        _check_n_features(detector, np.empty((1, X.shape[-1])), reset=reset)
        pixels = Pixels(X)
    else:
        pixels = Pixels(_in_memory(detector, X, reset))
    if detector.window is not None:
        check_window(detector.window, pixels.shape, pixels.bands, detector.covariance)
    if detector.columns is not None:
        _check_columns(detector, pixels, reset)
    return pixels


def _in_memory(detector: Detector, X: Any, reset: bool) -> Any:
    """An array, which may be masked, or a tensor that lies elsewhere than on the CPU."""
    least = 1 + reset
    if isinstance(X, Tensor):
        X = X.detach()
        X = X.float() if X.dtype in (torch.bfloat16, torch.float16) else X
        X = X if X.device.type != "cpu" else X.numpy()
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) > 3:
        raise ValueError(
            f"pixels must have shape (N, bands), an image (H, W, bands), got {tuple(X.shape)}"
        )
    if isinstance(X, Tensor):
        if X.dim() < 2 or X.shape[:-1].numel() < least or X.is_complex():
            raise ValueError(
                "pixels must be real numbers of shape (N, bands) or (H, W, bands), two or more "
                f"to fit; got {X.dtype} {tuple(X.shape)}"
            )
        _check_n_features(detector, X.flatten(0, -2), reset=reset)
        return X
    mask, shape = np.ma.getmask(X), X.shape
    rows = X.reshape(shape[0] * shape[1], shape[2]) if len(shape) == 3 else X
    rows = np.ma.getdata(rows) if isinstance(rows, np.ma.MaskedArray) else rows
    options = {"dtype": "numeric", "ensure_all_finite": False}
    found = validate_data(detector, rows, reset=reset, ensure_min_samples=least, **options)
    image = found.reshape(shape) if len(shape) == 3 else found
    if not mask.any():
        return image
    image = np.ma.array(image, mask=mask)
    gaps = mask.any(axis=-1)
    if gaps.all():
        raise Pixels(image).why_empty()
    if detector.window is not None:
        raise gaps_in_window(int(gaps.sum()))
    return image


def _check_columns(detector: Detector, pixels: Pixels, reset: bool) -> None:
    """Raise unless each strip of columns can have a background."""
    assert detector.columns is not None
    said = setting("columns", check_count("columns", detector.columns))
    if detector.window is not None or detector.covariance not in STREAMED:
        raise ValueError(
            f"{said} goes with {setting('covariance', 'sample')} or "
            f"{setting('covariance', 'oas')}, and without a window"
        )
    if len(pixels.shape) != 2 or detector.columns > pixels.width:
        raise ValueError(
            f"{said} asks for an image (H, W, bands) of so many columns or more, got "
            f"{(*pixels.shape, pixels.bands)}"
        )
    strips = strips_of(detector.columns, pixels.width)
    if not reset and strips != detector._strips:
        raise ValueError(
            f"{said}: the backgrounds are those of an image of {detector._strips[-1].stop} "
            f"columns, this one has {pixels.width}"
        )
    # Scatter, covariance and whitening, and what is made of them for a moment.
    needed = 4 * 8 * len(strips) * pixels.bands**2
    require_memory(f"{len(strips)} backgrounds", needed, advice=f"make {setting('columns')} larger")
