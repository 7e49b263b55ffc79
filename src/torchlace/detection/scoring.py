"""Scores of the blocks of an image, by one background, by those of its columns, or in a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchlace._device import find_device
from torchlace._sklearn import Array
from torchlace._text import counted, setting
from torchlace.detection.pixels import Block, Pixels, batches
from torchlace.detection.window import around, sliding

if TYPE_CHECKING:
    from torchlace.detection.base import Detector


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


def gaps_in_window(count: int) -> ValueError:
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
            raise gaps_in_window(int((~block.known).sum()))
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
