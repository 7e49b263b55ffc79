"""What detectors share: the background, scores block by block, and thresholds for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from torchlace._checks import check_choice, check_count, check_number
from torchlace._sklearn import Array, fit_anew
from torchlace._text import setting
from torchlace._torch import find_device
from torchlace.detection.background import (
    Covariance,
    Gaussian,
    Moments,
    estimate,
    strips_of,
    whitening,
)
from torchlace.detection.pixels import Block, Pixels, is_lazy
from torchlace.detection.scoring import read_pixels, score_blocks
from torchlace.detection.tasks import largest, map_scores, sum_chunks
from torchlace.detection.window import Window, ring_size

Threshold = Literal["auto", "cfar", "empirical"]
# The blocks that moments have yet to see; who asks for the next one has added the one before.
Watch = Callable[[Pixels, Moments], Iterable[Block]]


@dataclass(kw_only=True, eq=False, repr=False)
class Detector(BaseEstimator):  # type: ignore[misc]
    """Scores every pixel, high where something is found, and finds what exceeds a threshold.

    The threshold is that of a false-alarm rate, by theory or counted. Subclasses define the
    statistic, :meth:`_compare`, and its null distribution, :meth:`_theory`.
    """

    covariance: Covariance = "sample"
    window: Window | None = None
    columns: int | None = None
    false_alarm: float = 1e-3
    threshold: Threshold = "auto"
    device: str = "auto"
    batch_size: int | None = None

    def fit(self, X: Any, y: None = None) -> Self:
        """Estimate the background from pixels, (N, bands), or from an image, (H, W, bands).

        What :func:`torchlace.detection.open_cube` opens is read in blocks, the chunks of a
        ``dask.array`` are looked at where they are.

        Returns:
            The detector, with ``mean_``, ``covariance_``, ``whitening_`` (unless a window slides)
            and ``n_samples_``, the number of pixels behind them; with ``columns``, one of each for
            each strip. A fit that fails changes nothing.
        """

        def learn(detector: Self) -> None:
            pixels = detector._fit(X, sum_chunks if is_lazy(X) else None)
            if detector._counts():
                size = detector._background_size(pixels)
                detector._count(detector._all_scores(pixels, size), size)

        return fit_anew(self, learn)

    def _fit(self, X: Any, watch: Watch | None = None) -> Pixels:
        """All but a threshold that is counted."""
        check_number("false_alarm", self.false_alarm, 0, 1)
        check_choice("threshold", self.threshold, get_args(Threshold))
        check_choice("covariance", self.covariance, get_args(Covariance))
        pixels = read_pixels(self, X, reset=True)
        self.targets_ = self._targets(pixels.bands)
        if self.window is None:
            device = find_device(self.device, pixels.source)
            self._strips = strips_of(self.columns, pixels.width)
            moments = Moments(self._strips, self._batch_size(device), device)
            blocks = None if watch is None else watch(pixels, moments)
            self._learn(estimate(pixels, self.covariance, moments, blocks))
        else:
            self.n_samples_: int | Array = ring_size(self.window)
        self._check_targets()
        return pixels

    def _learn(self, found: Gaussian) -> None:
        if self.columns is None:
            self.mean_, self.covariance_, samples = found.strip(0)
            self.n_samples_, self.whitening_ = int(samples), whitening(found.strip(0))
            return
        self.mean_, self.covariance_, self.n_samples_ = found
        self.whitening_ = np.empty_like(self.covariance_)
        for index, strip in enumerate(self._strips):
            place = f" in columns {strip.start} to {strip.stop - 1}"
            self.whitening_[index] = whitening(found.strip(index), place)

    def score_samples(self, X: Any) -> Array:
        """The statistic of every pixel: (N,) or (H, W), and a last axis for several targets.

        Of a masked array pixels that are masked in any band are left out, and masked in the result.
        Of a ``dask.array`` the scores are one too, yet to be computed, NaN where pixels are masked.
        """
        check_is_fitted(self)
        pixels = read_pixels(self, X, reset=False)
        if is_lazy(X):
            lazy: Array = map_scores(self, pixels)
            return lazy
        parts = [scores for _, scores in score_blocks(self, pixels)]
        scores = np.concatenate(parts).reshape(*pixels.shape, *self._shape_of_scores())
        missing = np.isnan(scores)
        if not missing.any():
            return scores
        if missing.all():
            raise pixels.why_empty()
        return np.ma.array(scores, mask=missing, fill_value=np.nan)

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
        """What a new pixel's score exceeds with the chance ``false_alarm``; one for each target.

        With ``columns`` one for each column, where it follows from theory.
        """
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

    def _theory(self, samples: int, fitted: bool) -> float:
        """The threshold by the null distribution, for fitted or for new pixels."""
        raise NotImplementedError(f"{type(self).__name__} must define _theory")

    def _has_theory(self) -> bool:
        return self.covariance == "sample"

    def _units(self) -> Array:
        """What the threshold by theory is divided by, of each strip and target, (S, K or 1)."""
        return np.ones((1, 1))

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
        """The targets, (K, d), or with ``columns`` those of each strip, (S, K, d)."""
        return self.targets_ - self.mean_[..., None, :] if self._centred() else self.targets_

    def _counts(self) -> bool:
        """Whether the threshold is counted rather than computed."""
        if self.threshold == "auto":
            return not self._has_theory()
        return self.threshold == "empirical"

    def _count(self, scores: Iterable[Array], size: int) -> None:
        """Learn what the threshold is of these scores of ``size`` background pixels."""
        self.background_size_ = size
        rank = self._rank(size)
        largest = np.empty((0, *self._shape_of_scores()))
        for part in scores:
            part = part.reshape(-1, *self._shape_of_scores())
            known = ~np.isnan(part.reshape(len(part), -1)[:, 0])
            largest = np.concatenate([largest, part[known]])
            if len(largest) > 2 * rank:
                largest = np.partition(largest, -rank, axis=0)[-rank:]
        self.quantile_ = np.sort(largest, axis=0)[-rank]

    def _rank(self, size: int) -> int:
        return size - math.ceil((size - 1) * (1 - self.false_alarm))

    def _all_scores(self, pixels: Pixels, size: int) -> Iterable[Array]:
        """Scores of an image part by part, as many of them as may matter for the threshold."""
        if is_lazy(pixels.source):
            scores = map_scores(self, pixels)
            return [largest(scores, self._shape_of_scores(), self._rank(size))]
        return (part for _, part in score_blocks(self, pixels))

    def _background_size(self, pixels: Pixels) -> int:
        """How many pixels of an image that is the background have data."""
        if self.window is not None:
            return pixels.height * pixels.width
        sizes: list[int] = np.atleast_1d(self.n_samples_).tolist()
        return sum(sizes)

    def _threshold(self, fitted: bool) -> float | Array:
        check_is_fitted(self)
        if self._counts():
            self._check_countable(self.background_size_)
            found: float | Array = self.quantile_
            return found
        if not self._has_theory():
            raise ValueError(
                f"{setting('threshold', 'cfar')} follows from theory for "
                f"{setting('covariance', 'sample')} only (and for "
                f"no matched filter in a window), not for {self.covariance!r} here: use "
                f"{setting('threshold', 'empirical')}"
            )
        samples = np.atleast_1d(self.n_samples_).tolist()
        known = {count: self._theory(count, fitted) for count in set(samples)}
        limits = np.array([[known[count]] for count in samples]) / self._units()
        several = bool(self._shape_of_scores()) and limits.shape[1] > 1
        limits = limits if several else limits[:, 0]
        if self.columns is not None:
            widths = [strip.stop - strip.start for strip in self._strips]
            limits = np.repeat(limits, widths, axis=0)
            return limits if several or not self._shape_of_scores() else limits[:, None]
        return limits[0] if several else float(limits[0])

    def _check_countable(self, size: int) -> None:
        if size * self.false_alarm < 1:
            raise ValueError(
                f"{setting('false_alarm', self.false_alarm)} can't be counted among "
                f"{size} background pixels: give {1 / self.false_alarm:.0f} or "
                "more, or raise it"
            )

    def _batch_size(self, device: torch.device) -> int:
        if self.batch_size is not None:
            return check_count("batch_size", self.batch_size)
        # What still fits into a cache, and what fills a GPU.
        return 2048 if device.type == "cpu" else 1 << 16


def _above(scores: Array, threshold: float | Array) -> Array:
    found: Array = scores > threshold
    if isinstance(found, np.ma.MaskedArray):
        found.fill_value = False  # nothing is found where nothing was looked at
    return found
