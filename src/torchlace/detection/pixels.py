"""Pixels of any kind as batches of tensors, and the mean and covariance of a background of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._sklearn import Array, as_tensor
from torchlace._text import listed, setting
from torchlace.functional import cholesky_whitening

Rows = Array | Tensor
Covariance = Literal["sample", "ledoit-wolf", "oas", "robust"]
# Below this share of a band's variance, what the other bands leave unexplained is rounding.
_LEAST_UNEXPLAINED = 1e-12


class BandError(ValueError):
    """Bands that nothing can be computed from: their numbers go where ``problem`` says {bands}."""

    def __init__(self, problem: str, bands: Array) -> None:
        super().__init__(f"{problem.format(bands=listed(bands.tolist()))}: X[..., keep]")
        self.problem, self.bands = problem, bands


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
    """
    if not isinstance(X, np.ma.MaskedArray):
        return X, None
    mask = np.ma.getmaskarray(X)
    if not mask.any():
        return X.data, None
    known = np.logical_not(mask.any(axis=-1))
    if not known.any():
        bands = _masked_everywhere(mask)
        where = f", in band {listed(bands.tolist())}" if len(bands) else " in some band"
        raise ValueError(f"every pixel is masked{where}: leave such bands out")
    return X.data[known], known


def mask_empty(cube: Array) -> Array:
    """Mask the pixels of a cube from a file that are NaN in every band or masked in any.

    A cube without such pixels comes back as it is.
    """
    values, mask = np.ma.getdata(cube), np.ma.getmask(cube)
    empty: Any = np.isnan(values[..., 0])
    if empty.any():
        empty = np.isnan(values).all(axis=-1)
    if empty.all():
        raise ValueError("there is no data in this cube: every pixel is NaN in every band")
    if mask is not np.ma.nomask:
        empty = empty | mask.any(axis=-1)
    if empty.all():
        bands = _masked_everywhere(np.ma.getmaskarray(cube))
        problem = "every pixel holds the header's data ignore value in some band"
        raise BandError(problem + (", and all do in {bands}" if len(bands) else ""), bands)
    if not empty.any():
        return values
    return np.ma.array(values, mask=np.broadcast_to(empty[..., None], values.shape))


def _masked_everywhere(mask: Array) -> Array:
    """The bands that a mask hides of every pixel."""
    return np.flatnonzero(mask.reshape(-1, mask.shape[-1]).all(axis=0))


def batches(
    rows: Rows, size: int, device: torch.device, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """Slices of ``rows`` on the device."""
    single = torch.float32 in (dtype, scoring_dtype(rows))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        if not isinstance(part, Tensor):
            part = as_tensor(part, np.float32 if single else np.float64)
        # First the way, then the precision: single takes half as long to go.
        yield part.to(device).to(dtype)


def scoring_dtype(rows: Rows) -> torch.dtype:
    """Single precision for what comes in single or half precision, else double."""
    real = rows.dtype.is_floating_point if isinstance(rows, Tensor) else rows.dtype.kind == "f"
    return torch.float32 if real and rows.dtype.itemsize <= 4 else torch.float64


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


class Gaussian(NamedTuple):
    """Mean, (d,), and covariance, (d, d), of a background, and how many pixels they come from."""

    mean: Array
    covariance: Array
    samples: int


def estimate(
    rows: Rows, shape: tuple[int, ...], method: Covariance, batch_size: int, device: torch.device
) -> Gaussian:
    """Mean and covariance of pixels, (N, d), in double precision; ``shape`` is their image's."""
    if method == "sample":
        return _sample(rows, shape, batch_size, device)
    from sklearn import covariance

    check_finite(rows, shape, "background pixels")
    values = np.asarray(rows.cpu() if isinstance(rows, Tensor) else rows, dtype=np.float64)
    if method == "robust":
        found = covariance.MinCovDet(random_state=0).fit(values)
    else:
        kinds: dict[str, Any] = {"ledoit-wolf": covariance.LedoitWolf, "oas": covariance.OAS}
        found = kinds[method](store_precision=False).fit(values)
    return Gaussian(found.location_, found.covariance_, len(values))


def whitening(background: Gaussian) -> Array:
    """Lower-triangular W with W Σ Wᵀ = I.

    Raises:
        ValueError: if the covariance has no usable inverse; the message says why and what to do.
    """
    covariance = torch.from_numpy(np.ascontiguousarray(background.covariance))
    factor = cholesky_whitening(covariance)
    unexplained = 1 / (factor.diagonal().square() * covariance.diagonal())
    if len(_constant(background)) or not (unexplained > _LEAST_UNEXPLAINED).all():
        raise _why_singular(background)
    return factor.numpy()


def _sample(rows: Rows, shape: tuple[int, ...], batch_size: int, device: torch.device) -> Gaussian:
    """Batches are merged exactly: the scatter within each, and that between their means."""
    count = 0
    mean: Any = 0.0
    scatter: Any = 0.0
    for part in batches(rows, batch_size, device):
        # NumPy, on the CPU, sees that Xᵀ·X is symmetric and computes half of it.
        batch: Any = part.numpy() if device.type == "cpu" else part
        with np.errstate(over="ignore", invalid="ignore"):
            centre = batch.mean(0)
            centred, step = batch - centre, centre - mean
            seen, count = count, count + len(batch)
            mean = mean + step * (len(batch) / count)
            scatter = scatter + centred.T @ centred
            scatter += step[:, None] * step * (len(batch) * seen / count)
    mean, covariance = (torch.as_tensor(v).cpu().numpy() for v in (mean, scatter / (count - 1)))
    if not np.isfinite(covariance).all():
        check_finite(rows, shape, "background pixels")
        raise ValueError("the background pixels are too large to be squared: rescale them")
    return Gaussian(mean, covariance, count)


def constant_bands(constant: Array, bands: int, where: str) -> BandError:
    """The error where some of the bands hold one value throughout."""
    return BandError(
        f"{len(constant)} of {bands} bands do not vary over the {where} ({{bands}}): drop them "
        "from pixels and target alike",
        constant,
    )


def _why_singular(background: Gaussian) -> ValueError:
    count, bands = background.samples, len(background.mean)
    fix = f"use {setting('covariance', 'ledoit-wolf')} or {setting('covariance', 'oas')}"
    if count <= bands:
        return ValueError(
            f"{count} background pixels in {bands} bands have no invertible covariance: give more "
            f"than {bands}, or {fix}"
        )
    constant = _constant(background)
    if len(constant):
        return constant_bands(constant, bands, "background")
    return ValueError(
        f"the covariance of {count} background pixels in {bands} bands is singular: some bands are "
        f"sums of others. Drop those, or {fix}"
    )


def _constant(background: Gaussian) -> Array:
    """Bands whose deviation is nothing but rounding."""
    deviations = np.sqrt(np.diag(background.covariance))
    return np.flatnonzero(deviations <= 1e-12 * np.abs(background.mean))
