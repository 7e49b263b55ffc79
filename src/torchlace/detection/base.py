"""What detectors share: the background, scores by batches or windows, and thresholds for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_n_features, check_is_fitted, validate_data
from torch import Tensor

from torchlace._checks import check_choice, check_count, check_number
from torchlace._device import find_device
from torchlace._sklearn import Array, fit_anew
from torchlace._text import setting
from torchlace.detection.pixels import (
    Covariance,
    Rows,
    as_rows,
    batches,
    check_finite,
    estimate,
    scoring_dtype,
    unmasked,
    whitening,
)
from torchlace.detection.window import Window, check_window, ring_size, sliding

Threshold = Literal["auto", "cfar", "empirical"]


@dataclass(kw_only=True, eq=False, repr=False)
class Detector(BaseEstimator):  # type: ignore[misc]
    """Scores every pixel, high where something is found, and finds what exceeds a threshold.

    The threshold is that of a false-alarm rate, by theory or counted. Subclasses define the
    statistic, :meth:`_compare`, and its null distribution, :meth:`_theory`.
    """

    covariance: Covariance = "sample"
    window: Window | None = None
    false_alarm: float = 1e-3
    threshold: Threshold = "auto"
    device: str = "auto"
    batch_size: int | None = None

    def fit(self, X: Any, y: None = None) -> Self:
        """Estimate the background from pixels, (N, bands), or from an image, (H, W, bands).

        Returns:
            The detector, with ``mean_``, ``covariance_``, ``whitening_`` (unless a window slides)
            and ``n_samples_``, the number of pixels behind them. A fit that fails changes nothing.
        """
        return fit_anew(self, lambda detector: detector._fit(X))

    def _fit(self, X: Any) -> None:
        check_number("false_alarm", self.false_alarm, 0, 1)
        check_choice("threshold", self.threshold, get_args(Threshold))
        check_choice("covariance", self.covariance, get_args(Covariance))
        X, _ = self._unmasked(X)
        rows, shape = self._rows(X, reset=True)
        self.targets_ = self._targets(rows.shape[1])
        if self.window is None:
            device = find_device(self.device, rows)
            found = estimate(rows, shape, self.covariance, self._batch_size(device), device)
            self.mean_, self.covariance_, self.n_samples_ = found
            self.whitening_ = whitening(found)
        else:
            check_window(self.window, shape, rows.shape[1], self.covariance)
            self.n_samples_ = ring_size(self.window)
        self._check_targets()
        if self._counts():
            self.background_size_ = len(rows)
            scores = self._score(rows, shape).reshape(len(rows), *self._shape_of_scores())
            self.quantile_ = np.quantile(scores, 1 - self.false_alarm, axis=0, method="higher")

    def score_samples(self, X: Any) -> Array:
        """The statistic of every pixel: (N,) or (H, W), and a last axis for several targets.

        Of a masked array pixels that are masked in any band are left out, and masked in the result.
        """
        check_is_fitted(self)
        X, known = self._unmasked(X)
        rows, shape = self._rows(X, reset=False)
        if self.window is not None:
            check_window(self.window, shape, rows.shape[1], self.covariance)
        scores = self._score(rows, shape).reshape(*shape, *self._shape_of_scores())
        if known is None:
            return scores
        full = np.full((*known.shape, *scores.shape[1:]), np.nan, scores.dtype)
        full[known] = scores
        return np.ma.array(full, mask=np.isnan(full), fill_value=np.nan)

    def decision_function(self, X: Any) -> Array:
        """The statistic less the threshold: positive where something is found."""
        scores = self.score_samples(X)
        margins: Array = scores - np.asarray(self.threshold_, dtype=scores.dtype)
        return margins

    def predict(self, X: Any) -> Array:
        """True where something is found, among pixels that the background does not hold."""
        return _above(self.score_samples(X), self.threshold_)

    def fit_predict(self, X: Any, y: None = None) -> Array:
        """True where something is found, in an image that is its own background.

        The exact threshold is then :attr:`fitted_threshold_`, not that for new pixels (see
        :mod:`torchlace.detection.null`); the more pixels, the closer are the two.
        """
        return _above(self.fit(X).score_samples(X), self.fitted_threshold_)

    @property
    def threshold_(self) -> float | Array:
        """What a new pixel's score exceeds with the chance ``false_alarm``; one for each target."""
        return self._threshold(fitted=False)

    @property
    def fitted_threshold_(self) -> float | Array:
        """The same for the pixels of the background itself."""
        return self._threshold(fitted=self.window is None)

    def _compare(self, pixels: Tensor, targets: Tensor) -> Tensor:
        """Scores, (..., N, K), of whitened pixels, (..., N, d), and targets, (..., K, d)."""
        raise NotImplementedError(f"{type(self).__name__} must define _compare")

    def _whiten_and_compare(self, pixels: Tensor, targets: Tensor, matrix: Tensor) -> Tensor:
        """Scores, (N, K), of centred pixels, (N, d), and whitened targets, (K, d)."""
        # A triangular product (SciPy has one) is half the work, but its threads and torch's wait
        # for each other: measured, three times slower on two cores.
        return self._compare(pixels @ matrix.mT, targets)

    def _theory(self, fitted: bool) -> float | Array:
        """The threshold by the null distribution, for fitted or for new pixels."""
        raise NotImplementedError(f"{type(self).__name__} must define _theory")

    def _has_theory(self) -> bool:
        return self.covariance == "sample"

    def _targets(self, bands: int) -> Array:
        return np.empty((0, bands))

    def _check_targets(self) -> None:
        """Raise where a target can't be found in this background."""

    def _shape_of_scores(self) -> tuple[int, ...]:
        """What the scores of a pixel have for a shape: (), or (K,) for several targets."""
        return ()

    def _centred(self) -> bool:
        return False

    def _centred_targets(self) -> Array:
        return self.targets_ - self.mean_ if self._centred() else self.targets_

    def _counts(self) -> bool:
        """Whether the threshold is counted rather than computed."""
        if self.threshold == "auto":
            return not self._has_theory()
        return self.threshold == "empirical"

    def _threshold(self, fitted: bool) -> float | Array:
        check_is_fitted(self)
        if not self._counts():
            if not self._has_theory():
                raise ValueError(
                    f"{setting('threshold', 'cfar')} follows from theory for "
                    f"{setting('covariance', 'sample')} only (and for "
                    f"no matched filter in a window), not for {self.covariance!r} here: use "
                    f"{setting('threshold', 'empirical')}"
                )
            return self._theory(fitted)
        if self.background_size_ * self.false_alarm < 1:
            raise ValueError(
                f"{setting('false_alarm', self.false_alarm)} can't be counted among "
                f"{self.background_size_} background pixels: give {1 / self.false_alarm:.0f} or "
                "more, or raise it"
            )
        found: float | Array = self.quantile_
        return found

    def _score(self, rows: Rows, shape: tuple[int, ...]) -> Array:
        scores = self._score_rows(rows) if self.window is None else self._score_image(rows, shape)
        if not np.isfinite(scores).all():
            check_finite(rows, shape)
            raise ValueError(
                "some scores are not finite though all pixels are: squares of pixels or target "
                "overflow, so rescale both"
            )
        return scores

    def _score_rows(self, rows: Rows) -> Array:
        device, dtype = find_device(self.device, rows), scoring_dtype(rows)
        mean, matrix, targets = (
            torch.as_tensor(part, dtype=dtype, device=device)
            for part in (self.mean_, self.whitening_, self._centred_targets())
        )
        targets = targets @ matrix.mT
        # What single precision rounds off the mean is much where pixels vary little about it.
        rest = torch.as_tensor(self.mean_ - mean.double().cpu().numpy(), dtype=dtype, device=device)
        scores = [
            self._whiten_and_compare((part - mean).sub_(rest), targets, matrix).cpu()
            for part in batches(rows, self._batch_size(device), device, dtype)
        ]
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
        """Checked pixels, (N, bands), and the shape they had without the bands."""
        rows, shape = as_rows(X)
        least = 1 + reset
        if not isinstance(rows, Tensor):
            options = {"dtype": "numeric", "ensure_all_finite": False}
            found = validate_data(self, rows, reset=reset, ensure_min_samples=least, **options)
            return found, shape
        if rows.dim() != 2 or len(rows) < least or rows.is_complex():
            raise ValueError(
                f"pixels must be real numbers of shape (N, bands) or (H, W, bands), two or more to "
                f"fit; got {rows.dtype} {tuple(X.shape)}"
            )
        _check_n_features(self, rows, reset=reset)
        return rows, shape


def _above(scores: Array, threshold: float | Array) -> Array:
    found: Array = scores > threshold
    if isinstance(found, np.ma.MaskedArray):
        found.fill_value = False  # nothing is found where nothing was looked at
    return found
