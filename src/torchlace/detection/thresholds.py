"""From scores to what is found: thresholds, by theory or counted."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from torchlace._checks import check_choice, check_number
from torchlace._text import setting
from torchlace.detection.statistics import Covariance
from torchlace.detection.window import Window

Threshold = Literal["auto", "cfar", "empirical"]
Array = npt.NDArray[Any]


class Thresholded(BaseEstimator):  # type: ignore[misc]
    """Finds what has a score above the threshold of a false-alarm rate.

    Example:
        >>> from torchlace.detection import RXDetector
        >>> isinstance(RXDetector(), Thresholded)
        True
    """

    covariance: Covariance
    window: Window | None
    false_alarm: float
    threshold: Threshold

    def fit(self, X: Any, y: None = None) -> Self:
        """Estimate the background."""
        raise NotImplementedError(f"{type(self).__name__} must define fit")

    def score_samples(self, X: Any) -> Array:
        """The statistic of every pixel."""
        raise NotImplementedError(f"{type(self).__name__} must define score_samples")

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

    def _theory(self, fitted: bool) -> float | Array:
        """The threshold by the null distribution, for fitted or for new pixels."""
        raise NotImplementedError(f"{type(self).__name__} must define _theory")

    def _check_threshold(self) -> None:
        check_number("false_alarm", self.false_alarm, 0, 1)
        check_choice("threshold", self.threshold, ("auto", "cfar", "empirical"))

    def _count(self, scores: Array, shape: tuple[int, ...]) -> None:
        """Learn the threshold from the scores of the background, whose pixels have this shape."""
        self.background_size_ = int(np.prod(shape))
        scores = scores.reshape(self.background_size_, *scores.shape[len(shape) :])
        self.quantile_ = np.quantile(scores, 1 - self.false_alarm, axis=0, method="higher")

    def _has_theory(self) -> bool:
        return self.covariance == "sample"

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


def _above(scores: Array, threshold: float | Array) -> Array:
    found: Array = scores > threshold
    if isinstance(found, np.ma.MaskedArray):
        found.fill_value = False  # nothing is found where nothing was looked at
    return found
