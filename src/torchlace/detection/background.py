"""The background of a search: mean, covariance and whitening of pixels, of all or by columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlace._files import require_memory
from torchlace._sklearn import Array
from torchlace._text import setting
from torchlace.detection.pixels import BandError, Block, Pixels, batches
from torchlace.functional import cholesky_whitening, shrink

Covariance = Literal["sample", "ledoit-wolf", "oas", "robust"]
# Those that follow from one pass over the pixels.
STREAMED = ("sample", "oas")
# Below this share of a band's variance, what the other bands leave unexplained is rounding.
_LEAST_UNEXPLAINED = 1e-12


class Gaussian(NamedTuple):
    """Mean, (d,), and covariance, (d, d), of a background, and how many pixels they come from.

    Of several strips of columns each has one dimension more, in front.
    """

    mean: Array
    covariance: Array
    samples: Array

    def strip(self, index: int) -> Gaussian:
        """That of one strip."""
        return Gaussian(*(part[index] for part in self))


class Moments:
    """Count, mean and scatter of pixels, merged exactly block by block, for each strip of columns.

    Args:
        strips: columns that have a background together.
        batch_size: pixels in a step.
        device: where to sum.

    Example:
        >>> image = Pixels(np.arange(24.0).reshape(3, 4, 2) ** 2)
        >>> moments = Moments([slice(0, 2), slice(2, 4)], 100, torch.device("cpu"))
        >>> for block in image.blocks(moments.device):
        ...     moments.add(block)
        >>> moments.gaussian().mean.round(1).tolist()
        [[124.7, 143.7], [212.7, 239.7]]
    """

    def __init__(self, strips: list[slice], batch_size: int, device: torch.device) -> None:
        self.strips, self.batch_size, self.device = strips, batch_size, device
        self.counts = [0] * len(strips)
        self.means: Any = None
        self.scatters: Any = None

    def add(self, block: Block) -> None:
        """Take in the pixels of a block that have data."""
        for strip, columns in enumerate(self.strips):
            for part in batches(block.pixels(columns), self.batch_size, self.device):
                # NumPy, on the CPU, sees that Xᵀ·X is symmetric and computes half of it.
                batch: Any = part.numpy() if self.device.type == "cpu" else part
                with np.errstate(over="ignore", invalid="ignore"):
                    mean = batch.mean(0)
                    centred = batch - mean
                    self._merge(strip, len(batch), mean, centred.T @ centred)

    def _merge(self, strip: int, many: int, mean: Any, scatter: Any) -> None:
        """Two scatters, and that between their means."""
        if self.scatters is None:
            shape = len(self.strips), *scatter.shape
            zeros = np.zeros if self.device.type == "cpu" else scatter.new_zeros
            self.means, self.scatters = zeros(shape[:2]), zeros(shape)
        seen, step = self.counts[strip], mean - self.means[strip]
        count = seen + many
        self.counts[strip] = count
        self.means[strip] += step * (many / count)
        self.scatters[strip] += scatter
        self.scatters[strip] += step[:, None] * step * (many * seen / count)

    def state(self) -> dict[str, Array]:
        """All of it as arrays, which :meth:`merge` takes."""
        seen = [strip for strip, count in enumerate(self.counts) if count]
        pair = self.means, self.scatters
        means, scatters = (_on_host(part)[seen] if seen else np.empty(0) for part in pair)
        return {"counts": np.array(self.counts), "means": means, "scatters": scatters}

    def merge(self, state: Mapping[str, Array]) -> None:
        """Take in what the moments of the same strips have seen whose state this is."""
        counts = state["counts"].tolist()
        seen = [strip for strip, count in enumerate(counts) if count]
        for strip, mean, scatter in zip(seen, state["means"], state["scatters"], strict=True):
            parts: tuple[Any, ...] = mean, scatter
            if self.device.type != "cpu":
                parts = tuple(torch.from_numpy(part).to(self.device) for part in parts)
            with np.errstate(over="ignore", invalid="ignore"):
                self._merge(strip, counts[strip], *parts)

    def gaussian(self, method: Literal["sample", "oas"] = "sample") -> Gaussian:
        """Mean and covariance of each strip; the latter take the place of the scatters."""
        covariances, samples = _on_host(self.scatters), np.array(self.counts)
        for covariance, count in zip(covariances, self.counts, strict=True):
            with np.errstate(invalid="ignore"):
                covariance /= count - (method == "sample")
            if method == "oas":
                whole = torch.from_numpy(covariance)
                whole.copy_(oas(whole, whole.new_tensor(count)))
        return Gaussian(_on_host(self.means), covariances, samples)


def estimate(
    pixels: Pixels, method: Covariance, moments: Moments, blocks: Iterable[Block] | None = None
) -> Gaussian:
    """Mean and covariance of each strip of pixels, in double precision.

    ``"sample"`` and ``"oas"`` need one pass over the ``blocks`` that the ``moments`` have not seen,
    the others, of scikit-learn, all pixels in memory.
    """
    names = "background pixels"
    if method in STREAMED:
        for block in pixels.blocks(moments.device) if blocks is None else blocks:
            moments.add(block)
        if not any(moments.counts):
            raise pixels.why_empty()
        for count, strip in zip(moments.counts, moments.strips, strict=True):
            if count < 2:
                where = f"columns {strip.start} to {strip.stop - 1} have"
                where = where if moments.strips[1:] else "there is"
                raise ValueError(f"{where} {count} background pixels with data: give two or more")
        found = moments.gaussian(method)  # type: ignore[arg-type]
    else:
        whole = 8 * pixels.height * pixels.width * pixels.bands
        require_memory("all pixels", whole, advice=f"use {setting('covariance', 'oas')}")
        pixels.check_finite(names)
        parts = [block.pixels() for block in map(pixels.read, pixels.ranges(moments.device))]
        if not any(map(len, parts)):
            raise pixels.why_empty()
        found = _by_sklearn(np.concatenate([_on_host(part) for part in parts]), method)
    if not all(np.isfinite(covariance).all() for covariance in found.covariance):
        pixels.check_finite(names)
        raise ValueError("the background pixels are too large to be squared: rescale them")
    return found


def strips_of(columns: int | None, width: int) -> list[slice]:
    """The columns of each background: so many, the last ones with what is left over."""
    if columns is None:
        return [slice(0, width)]
    starts = range(0, max(width - columns, 0) + 1, columns)
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], width], strict=True)]


def whitening(background: Gaussian, where: str = "") -> Array:
    """Lower-triangular W with W Σ Wᵀ = I, or an error that says ``where`` there is none."""
    covariance = torch.from_numpy(np.ascontiguousarray(background.covariance))
    factor = cholesky_whitening(covariance)
    unexplained = 1 / (factor.diagonal().square() * covariance.diagonal())
    if len(_constant(background)) or not (unexplained > _LEAST_UNEXPLAINED).all():
        raise _why_singular(background, where)
    return factor.numpy()


def oas(covariance: Tensor, count: Tensor) -> Tensor:
    """Covariances, (..., d, d), shrunk by the amount of Chen et al. (oracle approximating)."""
    variance, bands = covariance.diagonal(dim1=-2, dim2=-1).mean(-1), covariance.shape[-1]
    square = covariance.square().mean((-2, -1))
    top = square + variance**2
    bottom = (count + 1) * (square - variance**2 / bands)
    return shrink(covariance, torch.where(bottom > top, top / bottom, 1))


def constant_bands(constant: Array, bands: int, where: str) -> BandError:
    """The error where some of the bands hold one value throughout."""
    return BandError(
        f"{len(constant)} of {bands} bands do not vary over the {where} ({{bands}}): drop them "
        "from pixels and target alike",
        constant,
    )


def _by_sklearn(values: Array, method: Covariance) -> Gaussian:
    from sklearn import covariance

    values = np.asarray(values, dtype=np.float64)
    if method == "robust":
        found = covariance.MinCovDet(random_state=0).fit(values)
    else:
        found = covariance.LedoitWolf(store_precision=False).fit(values)
    return Gaussian(found.location_[None], found.covariance_[None], np.array([len(values)]))


def _on_host(values: Any) -> Array:
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values)


def _why_singular(background: Gaussian, where: str) -> ValueError:
    count, bands = background.samples, len(background.mean)
    fix = f"use {setting('covariance', 'oas')}"
    if not where:
        fix = f"use {setting('covariance', 'ledoit-wolf')} or {setting('covariance', 'oas')}"
    if count <= bands:
        return ValueError(
            f"{count} background pixels{where} in {bands} bands have no invertible covariance: "
            f"give more than {bands}, or {fix}"
        )
    constant = _constant(background)
    if len(constant):
        return constant_bands(constant, bands, f"background{where}")
    return ValueError(
        f"the covariance of {count} background pixels{where} in {bands} bands is singular: some "
        f"bands are sums of others. Drop those, or {fix}"
    )


def _constant(background: Gaussian) -> Array:
    """Bands whose deviation is nothing but rounding."""
    deviations = np.sqrt(np.diag(background.covariance))
    return np.flatnonzero(deviations <= 1e-12 * np.abs(background.mean))
