"""Mean, covariance and whitening of a background."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._text import setting
from torchlace.detection.pixels import BandError, Rows, batches, check_finite
from torchlace.functional import cholesky_whitening

Covariance = Literal["sample", "ledoit-wolf", "oas", "robust"]
COVARIANCES = ("sample", "ledoit-wolf", "oas", "robust")
# Below this share of a band's variance, what the other bands leave unexplained is rounding.
_LEAST_UNEXPLAINED = 1e-12


class Gaussian(NamedTuple):
    """What is known of a background."""

    mean: npt.NDArray[np.float64]
    """(d,)."""
    covariance: npt.NDArray[np.float64]
    """(d, d)."""
    samples: int
    """How many pixels it was estimated from."""


def estimate(
    rows: Rows,
    shape: tuple[int, ...],
    method: Covariance,
    batch_size: int,
    device: torch.device,
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


def whitening(background: Gaussian) -> npt.NDArray[np.float64]:
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
        return BandError(
            f"{len(constant)} of {bands} bands do not vary over the background ({{bands}}): drop "
            "them from pixels and target alike",
            constant,
        )
    return ValueError(
        f"the covariance of {count} background pixels in {bands} bands is singular: some bands are "
        f"sums of others. Drop those, or {fix}"
    )


def _constant(background: Gaussian) -> npt.NDArray[np.int64]:
    """Bands whose deviation is nothing but rounding."""
    deviations = np.sqrt(np.diag(background.covariance))
    return np.flatnonzero(deviations <= 1e-12 * np.abs(background.mean))
