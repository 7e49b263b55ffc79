"""What detectors are given, checked, and its scores, block by block.

The background is one for all pixels, one for each strip of columns, or that of a window.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.utils.validation import _check_n_features, validate_data
from torch import Tensor

from torchlace._checks import check_count
from torchlace._files import require_memory
from torchlace._sklearn import Array
from torchlace._text import counted, setting
from torchlace._torch import find_device
from torchlace.detection.background import STREAMED, strips_of
from torchlace.detection.cubes import Cube
from torchlace.detection.pixels import Block, Pixels, batches, is_lazy
from torchlace.detection.window import around, check_window, sliding

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


def score_blocks(
    detector: Detector, pixels: Pixels, start: int = 0
) -> Iterator[tuple[slice, Array]]:
    """Scores, (rows, W, K or 1), of the rows from ``start`` on; NaN where there is no data."""
    device = find_device(detector.device, pixels.source)
    score = _locally if detector.window is not None else _globally
    for rows, scores, known in score(detector, pixels, device, start):
        good = np.isfinite(scores)
        if known is not None:
            good |= ~known[..., None]
        if not good.all():
            pixels.check_finite()
            raise ValueError(
                "some scores are not finite though all pixels are: squares of pixels or target "
                "overflow, so rescale both"
            )
        yield rows, scores


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
        raise _gaps_in_window(int(gaps.sum()))
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
    # Scatter, which becomes the covariance, and whitening; and what scores are computed by.
    needed = 3 * 8 * len(strips) * pixels.bands**2
    require_memory(f"{len(strips)} backgrounds", needed, advice=f"make {setting('columns')} larger")


def _gaps_in_window(count: int) -> ValueError:
    """The error of pixels without data in an image that a window slides over."""
    return ValueError(
        f"{counted(count, 'pixel')} without data, which a window would slide over: cut the "
        f"image to where data is, or leave {setting('window')} out"
    )


def _globally(
    detector: Detector, pixels: Pixels, device: torch.device, start: int
) -> Iterator[tuple[slice, Array, Array | None]]:
    strips = _Strips(detector, pixels, device)
    for block in pixels.blocks(device, start):
        yield block.rows, strips.scores(block), block.known


class _Strips:
    """The backgrounds and targets of strips of columns, on a device."""

    def __init__(self, detector: Detector, pixels: Pixels, device: torch.device) -> None:
        self.detector, self.dtype, self.device = detector, pixels.dtype, device
        self.columns = detector._strips
        bands = pixels.bands
        means = detector.mean_.reshape(-1, bands)
        matrices = detector.whitening_.reshape(-1, bands, bands)
        targets = detector._centred_targets()
        targets = np.array(np.broadcast_to(targets, (len(means), *targets.shape[-2:])))
        self.count = max(targets.shape[1], 1)
        self.parts = [*map(self._part, means, matrices, targets)]

    def _part(self, mean: Array, matrix: Array, targets: Array) -> tuple[Tensor, ...]:
        centre, white, looked_for = (
            torch.as_tensor(value, dtype=self.dtype, device=self.device)
            for value in (mean, matrix, targets)
        )
        # What single precision rounds off the mean is much where pixels vary little about it.
        rest = torch.from_numpy(mean - centre.double().cpu().numpy()).to(self.device, self.dtype)
        return centre, rest, looked_for @ white.mT, white

    def scores(self, block: Block) -> Array:
        """Of one block, (rows, W, K or 1)."""
        shape = (*block.values.shape[:2], self.count)
        if block.known is None and len(self.parts) == 1:
            return self._of(block.pixels(), *self.parts[0]).reshape(shape)
        scores = np.full(shape, np.nan, np.float32 if self.dtype == torch.float32 else np.float64)
        for columns, part in zip(self.columns, self.parts, strict=True):
            known: Any = slice(None) if block.known is None else block.known[:, columns]
            place = scores[:, columns]
            place[known] = self._of(block.pixels(columns), *part).reshape(place[known].shape)
        return scores

    def _of(
        self, rows: Any, centre: Tensor, rest: Tensor, targets: Tensor, matrix: Tensor
    ) -> Array:
        size = self.detector._batch_size(self.device)
        compare = self.detector._whiten_and_compare
        found = [
            compare((part - centre).sub_(rest), targets, matrix)
            for part in batches(rows, size, self.device, self.dtype)
        ]
        return torch.cat(found).cpu().numpy() if found else np.empty((0, self.count))


def _locally(
    detector: Detector, pixels: Pixels, device: torch.device, start: int
) -> Iterator[tuple[slice, Array, None]]:
    window = detector.window
    assert window is not None
    targets = torch.as_tensor(detector.targets_, device=device)
    for rows in pixels.ranges(device, start, least=window[1]):
        reach = around(rows, window, pixels.height)
        block = pixels.read(reach)
        if block.known is not None:
            raise _gaps_in_window(int((~block.known).sum()))
        values = block.pixels()
        # Exact sums need double precision whatever the pixels have.
        image = next(batches(values, len(values), device)).view(block.values.shape)
        if not torch.isfinite(image).all():
            pixels.check_finite()
        inner = range(rows.start - reach.start, rows.stop - reach.start)
        scores = image.new_empty(len(inner), pixels.width, max(len(targets), 1))
        options = {"centre": detector._centred(), "shrunk": detector.covariance == "oas"}
        for local in sliding(image, targets, window, inner, reach.start, **options):
            found = detector._compare(local.pixels, local.targets)[:, 0]
            scores[local.row - inner.start, local.columns] = found
        yield rows, scores.to(pixels.dtype).cpu().numpy(), None
