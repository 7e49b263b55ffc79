"""What detectors share: the background, and scores by batches and windows."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from torchlace._checks import check_choice, check_count
from torchlace._device import find_device
from torchlace._text import setting
from torchlace.detection.fitting import fit_anew
from torchlace.detection.pixels import (
    Rows,
    as_rows,
    batches,
    check_finite,
    scoring_dtype,
    unmasked,
)
from torchlace.detection.statistics import COVARIANCES, estimate, whitening
from torchlace.detection.thresholds import Array, Thresholded
from torchlace.detection.window import check_window, ring_size, sliding

Convention = Literal["classical", "paper"]


class Detector(Thresholded):
    """A score for every pixel, large where something is found, and a threshold for it.

    Example:
        >>> from torchlace.detection import RXDetector
        >>> isinstance(RXDetector(), Detector)
        True
    """

    device: str
    batch_size: int | None

    def fit(self, X: Any, y: None = None) -> Self:
        """Estimate the background from pixels, (N, bands), or from an image, (H, W, bands).

        Returns:
            The detector, with ``mean_``, ``covariance_``, ``whitening_`` (unless a window slides)
            and ``n_samples_``, the number of pixels behind them. A fit that fails changes nothing.
        """
        return fit_anew(self, lambda detector: detector._fit(X))

    def _fit(self, X: Any) -> None:
        self._check_threshold()
        check_choice("covariance", self.covariance, COVARIANCES)
        X, _ = self._unmasked(X)
        rows, shape = self._rows(X, reset=True)
        self.targets_ = self._targets(rows.shape[1])
        if self.window is None:
            device = find_device(self.device, rows)
            found = estimate(rows, shape, self.covariance, self._batch_size(device), device)
            self.mean_, self.covariance_, self.n_samples_ = found
            self.whitening_ = whitening(found)
        else:
            self._check_window(shape, rows.shape[1])
            self.n_samples_ = ring_size(self.window)
        self._check_targets()
        if self._counts():
            self._count(self.score_samples(X), shape)

    def score_samples(self, X: Any) -> Array:
        """The statistic of every pixel: (N,) or (H, W), and a last axis for several targets.

        Of a masked array pixels that are masked in any band are left out, and masked in the result.
        """
        check_is_fitted(self)
        X, known = self._unmasked(X)
        scores = self._score_all(X)
        if known is None:
            return scores
        full = np.full((*known.shape, *scores.shape[1:]), np.nan, scores.dtype)
        full[known] = scores
        return np.ma.array(full, mask=np.isnan(full), fill_value=np.nan)

    def _score_all(self, X: Any) -> Array:
        rows, shape = self._rows(X, reset=False)
        if self.window is None:
            scores = self._score_rows(rows)
        else:
            self._check_window(shape, rows.shape[1])
            scores = self._score_image(rows, shape)
        if not np.isfinite(scores).all():
            check_finite(rows, shape)
            raise ValueError(
                "some scores are not finite though all pixels are: squares of pixels or target "
                "overflow, so rescale both"
            )
        return scores.reshape(shape if self._single() else (*shape, scores.shape[-1]))

    def _compare(self, pixels: Tensor, targets: Tensor) -> Tensor:
        """Scores, (..., N, K), of whitened pixels, (..., N, d), and targets, (..., K, d)."""
        raise NotImplementedError(f"{type(self).__name__} must define _compare")

    def _score(self, pixels: Tensor, targets: Tensor, matrix: Tensor) -> Tensor:
        """Scores, (N, K), of centred pixels, (N, d), and whitened targets, (K, d)."""
        # A triangular product (SciPy has one) is half the work, but its threads and torch's wait
        # for each other: measured, three times slower on two cores.
        return self._compare(pixels @ matrix.mT, targets)

    def _targets(self, bands: int) -> Array:
        return np.empty((0, bands))

    def _check_targets(self) -> None:
        """Raise where a target can't be found in this background."""

    def _single(self) -> bool:
        return True

    def _centred(self) -> bool:
        return False

    def _centred_targets(self) -> Array:
        return self.targets_ - self.mean_ if self._centred() else self.targets_

    def _score_rows(self, rows: Rows) -> Array:
        device, dtype = find_device(self.device, rows), scoring_dtype(rows)
        mean, matrix, targets = (
            torch.as_tensor(part, dtype=dtype, device=device)
            for part in (self.mean_, self.whitening_, self._centred_targets())
        )
        targets = targets @ matrix.mT
        # What single precision rounds off the mean is much where pixels vary little about it.
        rest = torch.as_tensor(self.mean_ - mean.double().cpu().numpy(), dtype=dtype, device=device)
        parts = batches(rows, self._batch_size(device), device, dtype)
        scores = [self._score((part - mean).sub_(rest), targets, matrix).cpu() for part in parts]
        return torch.cat(scores).numpy()

    def _score_image(self, rows: Rows, shape: tuple[int, ...]) -> Array:
        assert self.window is not None
        check_finite(rows, shape)
        device = find_device(self.device, rows)
        # Exact sums need double precision whatever the pixels have.
        image = next(batches(rows, len(rows), device)).view(*shape, -1)
        targets = torch.as_tensor(self.targets_, device=device)
        options = {"centre": self._centred(), "oas": self.covariance == "oas"}
        scores = image.new_empty(*shape, max(len(targets), 1))
        for local in sliding(image, targets, self.window, **options):
            scores[local.row, local.columns] = self._compare(local.pixels, local.targets)[:, 0]
        return scores.view(len(rows), -1).to(scoring_dtype(rows)).cpu().numpy()

    def _check_window(self, shape: tuple[int, ...], bands: int) -> None:
        assert self.window is not None
        guard, outer = check_window(self.window)
        if self.covariance not in ("sample", "oas"):
            raise ValueError(
                f"a window goes with {setting('covariance', 'sample')} or "
                f"{setting('covariance', 'oas')}, not with {self.covariance!r}"
            )
        if len(shape) != 2:
            raise ValueError(
                "a window slides over an image (H, W, bands); these are pixels without places"
            )
        if outer > min(shape):
            raise ValueError(f"a window of {outer} pixels does not fit into an image of {shape}")
        if self.covariance == "sample" and ring_size(self.window) <= bands:
            raise ValueError(
                f"the window {guard, outer} holds {ring_size(self.window)} background pixels, not "
                f"more than {bands} bands: widen it, or use {setting('covariance', 'oas')}"
            )

    def _batch_size(self, device: torch.device) -> int:
        if self.batch_size is not None:
            return check_count("batch_size", self.batch_size)
        # What still fits into a cache, and what fills a GPU.
        return 2048 if device.type == "cpu" else 1 << 16

    def _unmasked(self, X: Any) -> tuple[Any, Array | None]:
        """What a mask leaves of the pixels and which those are; as they came if it hides none."""
        X, known = unmasked(X)
        if known is not None and self.window is not None:
            raise ValueError(
                f"{(~known).sum()} pixels are masked, which a window would slide over: cut the "
                "image to where data is, or use no window"
            )
        return X, known

    def _rows(self, X: Any, reset: bool) -> tuple[Rows, tuple[int, ...]]:
        rows, shape = as_rows(X)
        if not isinstance(rows, Tensor):
            options = {"dtype": "numeric", "ensure_all_finite": False}
            least = 2 if reset else 1
            found = validate_data(self, rows, reset=reset, ensure_min_samples=least, **options)
            return found, shape
        if rows.dim() != 2 or len(rows) < 1 + reset or rows.is_complex():
            raise ValueError(
                f"pixels must be real numbers of shape (N, bands) or (H, W, bands), two or more to "
                f"fit; got {rows.dtype} {tuple(X.shape)}"
            )
        if reset:
            self.n_features_in_ = rows.shape[1]
        elif rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return rows, shape
