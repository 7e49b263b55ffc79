"""Backgrounds that slide over an image: the ring of pixels around each, without its neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchlace._checks import check_count
from torchlace._text import setting
from torchlace.detection.background import Covariance, constant_bands, oas
from torchlace.functional import cholesky

Window = tuple[int, int]

# Sums over windows are differences of sums over larger areas, which leaves rounding: a share of a
# band's variance below the first, or of the image's variance below the second, may be nothing else.
_LEAST_UNEXPLAINED = 1e-10
_LEAST_VARIANCE = 1e-12
# So much brighter or darker than the rest, in median deviations of a band, a pixel stays out of
# those sums: its square would leave rounding that is large beside the other pixels. Windows that
# hold one are decomposed without a covariance, down to the root of what sums can tell.
_GLARING = 300
_LEAST_UNEXPLAINED_OF_PIXELS = 1e-20
# Bytes of second moments of one strip of columns, and of pixels that are decomposed at a time.
_STRIP_BYTES = 1 << 26


class Local(NamedTuple):
    """Pixels of a row, (P, 1, d), and targets, (P, K, d), whitened by the pixels' backgrounds."""

    row: int
    columns: slice
    pixels: Tensor
    targets: Tensor


def check_window(
    window: Window, shape: tuple[int, ...], bands: int, covariance: Covariance
) -> None:
    """Raise unless a window of two odd widths can slide over pixels of this shape."""
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"window must be a pair (guard, outer) of widths, got {window!r}")
    guard, outer = (check_count("window", width) for width in window)
    if guard % 2 == 0 or outer % 2 == 0 or guard >= outer:
        raise ValueError(
            f"window must be two odd widths, the guard smaller than the outer, got {window}"
        )
    if covariance not in ("sample", "oas"):
        raise ValueError(
            f"a window goes with {setting('covariance', 'sample')} or "
            f"{setting('covariance', 'oas')}, not with {covariance!r}"
        )
    if len(shape) != 2:
        raise ValueError(
            "a window slides over an image (H, W, bands); these are pixels without places"
        )
    if outer > min(shape):
        raise ValueError(f"a window of {outer} pixels does not fit into an image of {shape}")
    if covariance == "sample" and ring_size(window) <= bands:
        raise ValueError(
            f"the window {guard, outer} holds {ring_size(window)} background pixels, not more "
            f"than {bands} bands: widen it, or use {setting('covariance', 'oas')}"
        )


def ring_size(window: Window) -> int:
    """How many pixels the background of each has."""
    return window[1] ** 2 - window[0] ** 2


def around(rows: slice, window: Window, height: int) -> slice:
    """The rows of an image that the windows around some of its rows reach."""
    outer = window[1]
    return slice(_start(rows.start, outer, height), _start(rows.stop - 1, outer, height) + outer)


def sliding(
    image: Tensor,
    targets: Tensor,
    window: Window,
    rows: range,
    top: int = 0,
    *,
    centre: bool,
    shrunk: bool,
) -> Iterator[Local]:
    """Whiten every pixel, and the targets, by the mean and covariance of the pixel's own ring.

    Windows keep their size at the border, where they are moved inside. Second moments of columns
    of pixels follow the rows by adding one and taking one away; sums over columns are differences
    of running sums: the work is the same for every size of the window. Only rings that hold a pixel
    far from all others are looked at pixel by pixel.

    The image, (H, W, d), is in double precision, ``rows`` those of its pixels to whiten, ``top``
    the number of its first row in a larger one. There may be no targets, (0, d). ``centre``
    subtracts the mean of the ring from the targets too, ``shrunk`` shrinks every covariance.
    """
    height, width, bands = image.shape
    shift, glaring = _outliers(image.flatten(0, 1))
    image = image - shift
    targets = targets - shift if centre else targets
    # A leading 1 makes counts, sums and second moments one matrix.
    padded = pad(image, (1, 0), value=1.0)
    padded[glaring.view(height, width)] = 0
    least = _LEAST_VARIANCE * float(padded[..., 1:].square().mean())
    strip = max(window[1], _STRIP_BYTES // (8 * (bands + 1) ** 2) - window[1])
    many = max(_STRIP_BYTES // (8 * ring_size(window) * bands), 1)
    for start in range(0, width, strip):
        columns = slice(start, min(start + strip, width))
        guard, outer = (_Columns(padded, size, columns) for size in window)
        for row in rows:
            moments = outer.moments(row) - guard.moments(row)
            mean, factor = _from_sums(moments, least, shrunk)
            # Sums of ones are exact, so a ring with pixels left out is known by its count.
            apart = start + (moments[:, 0, 0] < ring_size(window)).nonzero()[:, 0]
            for some in apart.split(many) if len(apart) else ():
                found = _from_pixels(_rings(image, window, row, some), shrunk)
                mean[some - start], factor[some - start] = found
            singular = torch.isnan(factor[:, 0, 0])
            if singular.any():
                column = start + int(singular.nonzero()[0])
                raise _why_singular(image, top + row, column)
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


def _outliers(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The median of each band, (d,), and which pixels lie far from it in any band, (N,)."""
    middle = pixels.median(0).values
    away = (pixels - middle).abs()
    usual = away.median(0).values
    # Most pixels may have the very same value, as counts do.
    usual = torch.where(usual > 0, usual, away.mean(0))
    return middle, (away > _GLARING * usual).any(1)


def _rings(image: Tensor, window: Window, row: int, columns: Tensor) -> Tensor:
    """The background pixels of some of a row, (P, n, d)."""
    height, width, _ = image.shape

    def starts(size: int) -> tuple[int, Tensor]:
        return _start(row, size, height), (columns - size // 2).clamp(0, width - size)

    (top, left), (guard_top, guard_left) = (starts(size) for size in reversed(window))
    steps = torch.arange(window[1], device=image.device)
    rows, places = (top + steps)[None, :, None], (left[:, None] + steps)[:, None]
    inside = (rows >= guard_top) & (rows < guard_top + window[0])
    guard = guard_left[:, None, None]
    inside = inside & (places >= guard) & (places < guard + window[0])
    chosen = (rows * width + places)[~inside].view(len(columns), ring_size(window))
    return image.flatten(0, 1)[chosen]


def _from_sums(moments: Tensor, least: float, shrunk: bool) -> tuple[Tensor, Tensor]:
    """Means, (P, d), and factors of covariances, NaN where pixels vary less than ``least``."""
    count = moments[:, :1, :1]
    mean = moments[:, 1:, :1] / count
    scatter = moments[:, 1:, 1:] - count * (mean @ mean.mT)
    variance = _diagonal(scatter).mean(-1) / count[:, 0, 0]
    scatter = torch.where((variance > least)[:, None, None], scatter, torch.nan)
    return mean[..., 0], _factor(scatter, count, shrunk)


def _from_pixels(rings: Tensor, shrunk: bool) -> tuple[Tensor, Tensor]:
    """The same for rings of pixels, (P, n, d)."""
    mean = rings.mean(1, keepdim=True)
    rings, count = rings - mean, rings.new_tensor(rings.shape[1])
    if shrunk:
        # Its ridge is as large as what the brightest pixel adds, so nothing small is lost.
        return mean[:, 0], _factor(rings.mT @ rings, count.view(1, 1, 1), shrunk)
    factor = torch.linalg.qr(rings, mode="r").R.mT
    variances, least = rings.square().sum(1), _LEAST_UNEXPLAINED_OF_PIXELS
    return mean[:, 0], _unless_singular(factor, variances, least) / (count - 1).sqrt()


def _factor(scatter: Tensor, count: Tensor, shrunk: bool) -> Tensor:
    """Lower triangular L with LLᵀ the covariance, (P, d, d); NaN where that is singular."""
    covariance = oas(scatter / count, count[:, 0, 0]) if shrunk else scatter / (count - 1)
    return _unless_singular(cholesky(covariance), _diagonal(covariance), _LEAST_UNEXPLAINED)


def _unless_singular(factor: Tensor, variances: Tensor, least: float) -> Tensor:
    good = (_diagonal(factor).square() > least * variances).all(-1)
    return torch.where(good[:, None, None], factor, torch.nan)


def _why_singular(image: Tensor, row: int, column: int) -> ValueError:
    constant = (image == image[:1, :1]).flatten(0, 1).all(0)
    if constant.any():
        return constant_bands(constant.nonzero()[:, 0].cpu().numpy(), len(constant), "image")
    return ValueError(
        f"the background around pixel ({row}, {column}) has a singular covariance: the pixels "
        f"there vary too little. Use a larger window, {setting('covariance', 'oas')}, or no window"
    )


def _diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1)
