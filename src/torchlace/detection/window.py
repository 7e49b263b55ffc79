"""Backgrounds that slide over an image: the ring of pixels around each, without its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchlace._checks import check_count
from torchlace.functional import cholesky, shrink

Window = tuple[int, int]

# Sums over windows are differences of sums over larger areas, which leaves rounding: a share of a
# band's variance below the first, or of the image's variance below the second, may be nothing else.
_LEAST_UNEXPLAINED = 1e-10
_LEAST_VARIANCE = 1e-12
# Bytes of second moments of one strip of columns.
_STRIP_BYTES = 1 << 26


class Local(NamedTuple):
    """Pixels of a row and the targets, whitened by the background around each pixel."""

    row: int
    columns: slice
    pixels: Tensor
    """(P, 1, d)."""
    targets: Tensor
    """(P, K, d)."""


def check_window(window: Window) -> Window:
    """Guard and outer width, odd, the first smaller."""
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"window must be a pair (guard, outer) of widths, got {window!r}")
    guard, outer = (check_count("window", width) for width in window)
    if guard % 2 == 0 or outer % 2 == 0 or guard >= outer:
        raise ValueError(
            f"window must be two odd widths, the guard smaller than the outer, got {window}"
        )
    return guard, outer


def ring_size(window: Window) -> int:
    """How many pixels the background of each has.

    Example:
        >>> ring_size((5, 21))
        416
    """
    return window[1] ** 2 - window[0] ** 2


def sliding(
    image: Tensor, targets: Tensor, window: Window, *, centre: bool, oas: bool
) -> Iterator[Local]:
    """Whiten every pixel, and the targets, by the mean and covariance of the pixel's own ring.

    Windows keep their size at the border, where they are moved inside. Second moments of columns
    of pixels follow the rows by adding one and taking one away; sums over columns are differences
    of running sums: the work is the same for every size of the window.

    Args:
        image: (H, W, d), double precision.
        targets: (K, d); K may be 0.
        window: guard and outer width.
        centre: subtract the mean of the ring from the targets too.
        oas: shrink every covariance by the amount of Chen et al. (oracle approximating shrinkage).
    """
    height, width, bands = image.shape
    shift = image.mean((0, 1))
    image = image - shift
    least = _LEAST_VARIANCE * float(image.square().mean())
    # A leading 1 makes counts, sums and second moments one matrix.
    padded = pad(image, (1, 0), value=1.0)
    targets = targets - shift if centre else targets
    strip = max(window[1], _STRIP_BYTES // (8 * (bands + 1) ** 2) - window[1])
    for start in range(0, width, strip):
        columns = slice(start, min(start + strip, width))
        guard, outer = (_Columns(padded, size, columns) for size in window)
        for row in range(height):
            mean, covariance = _background(outer.moments(row) - guard.moments(row), least, oas)
            factor = _factor(covariance, row, start)
            pixels = (image[row, columns] - mean)[:, None]
            local = targets.expand(len(mean), *targets.shape)
            together = torch.cat([pixels, local - mean[:, None] if centre else local], dim=1)
            white = torch.linalg.solve_triangular(factor, together.mT, upper=False).mT
            yield Local(row, columns, white[:, :1], white[:, 1:])


class _Columns:
    """Moments of square windows around the pixels of a strip of columns, row after row."""

    def __init__(self, padded: Tensor, size: int, columns: slice) -> None:
        height, width, entries = padded.shape
        self.size, self.height = size, height
        first = [_start(column, size, width) for column in range(columns.start, columns.stop)]
        self.first = torch.tensor(first, device=padded.device) - first[0]
        self.image = padded[:, first[0] : first[-1] + size]
        self.rows = range(0)
        self.sums = padded.new_zeros(self.image.shape[1], entries, entries)

    def moments(self, row: int) -> Tensor:
        """Sums of (1, x)(1, x)ᵀ over the windows around the pixels of a row, (P, d + 1, d + 1)."""
        top = _start(row, self.size, self.height)
        rows = range(top, top + self.size)
        for number in set(rows).symmetric_difference(self.rows):
            pixels = self.image[number]
            sign = 1 if number in rows else -1
            self.sums.baddbmm_(pixels[:, :, None], pixels[:, None], alpha=sign)
        self.rows = rows
        running = pad(self.sums.cumsum(0), (0, 0, 0, 0, 1, 0))
        return running[self.first + self.size] - running[self.first]


def _start(position: int, size: int, length: int) -> int:
    return min(max(position - size // 2, 0), length - size)


def _background(moments: Tensor, least: float, oas: bool) -> tuple[Tensor, Tensor]:
    """Means, (P, d), and covariances, (P, d, d), NaN where pixels vary less than ``least``."""
    count = moments[:, :1, :1]
    mean = moments[:, 1:, :1] / count
    scatter = moments[:, 1:, 1:] - count * (mean @ mean.mT)
    variance = _diagonal(scatter).mean(-1) / count[:, 0, 0]
    scatter = torch.where((variance > least)[:, None, None], scatter, torch.nan)
    if not oas:
        return mean[..., 0], scatter / (count - 1)
    covariance, bands = scatter / count, scatter.shape[-1]
    square = covariance.square().mean((-2, -1))
    top = square + variance**2
    bottom = (count[:, 0, 0] + 1) * (square - variance**2 / bands)
    return mean[..., 0], shrink(covariance, torch.where(bottom > top, top / bottom, 1))


def _factor(covariance: Tensor, row: int, start: int) -> Tensor:
    factor = cholesky(covariance)
    unexplained = _diagonal(factor).square() / _diagonal(covariance)
    good = (unexplained > _LEAST_UNEXPLAINED).all(-1)
    if not good.all():
        column = start + int((~good).nonzero()[0])
        raise ValueError(
            f"the background around pixel ({row}, {column}) has a singular covariance: the pixels "
            'there vary too little. Use a larger window, covariance="oas", or no window'
        )
    return factor


def _diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1)
