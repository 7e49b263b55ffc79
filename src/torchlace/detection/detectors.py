"""Detectors with the face of scikit-learn: ACE, the spectral matched filter, RX."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from torchlace._checks import check_choice
from torchlace._sklearn import Array, as_array
from torchlace.detection.base import Detector
from torchlace.detection.null import ace_threshold, rx_threshold, smf_threshold
from torchlace.detection.pixels import BandError
from torchlace.functional import ace

Convention = Literal["classical", "paper"]


@dataclass(eq=False, repr=False)
class _TargetDetector(Detector):
    """A detector of known targets."""

    target: npt.ArrayLike
    _: KW_ONLY
    convention: Convention = "classical"

    def _targets(self, bands: int) -> Array:
        check_choice("convention", self.convention, get_args(Convention))
        given = np.asarray(as_array(self.target, "target"))
        if given.dtype.kind not in "biuf":
            raise TypeError(f"target must hold real numbers, got {given.dtype}")
        targets = np.array(given, dtype=np.float64, ndmin=2)
        if targets.ndim != 2 or targets.shape[1] != bands or not len(targets):
            raise ValueError(
                f"target must have shape ({bands},) or (K, {bands}), one number for each band of "
                f"the background, got {given.shape}"
            )
        self._check_measured(np.isfinite(targets))
        return targets

    def _check_measured(self, measured: Array) -> None:
        """Raise unless every target, (K, bands), is measured in every band."""
        empty = np.flatnonzero(~measured.any(axis=1))
        if len(empty):
            name = "target" if len(measured) == 1 else f"target {empty[0]}"
            raise ValueError(
                f"{name} has no measured band: all its {measured.shape[1]} values are NaN or "
                "infinite, and a spectrum to look for holds numbers"
            )
        bad = np.flatnonzero(~measured.all(axis=0))
        if len(bad) == measured.shape[1]:
            raise ValueError(
                "no band is measured in all targets, each is NaN or infinite in one or another: "
                "look for the targets one by one, without the bands that each lacks"
            )
        if len(bad):
            raise BandError(
                "target holds NaN or infinite values in {bands}: drop these bands from pixels and "
                "target alike",
                bad,
            )

    def _check_targets(self) -> None:
        if self.window is not None:
            # Each pixel has its own mean, so only a zero is lost everywhere.
            zero = ~self.targets_.any(axis=1)
            lost = np.flatnonzero(zero & (not self._centred()))
        else:
            matrix = np.swapaxes(self.whitening_, -1, -2)
            size = np.linalg.norm(self.targets_ @ matrix, axis=-1)
            size += np.linalg.norm(self.mean_[..., None, :] @ matrix, axis=-1)
            lost = np.flatnonzero(np.atleast_2d(self._lengths() <= 1e-10 * size).any(axis=0))
        if len(lost):
            what = "the mean of the background" if self._centred() else "zero"
            raise ValueError(f"target {lost[0]} is {what}: it has no direction to look for")

    def _shape_of_scores(self) -> tuple[int, ...]:
        return () if np.ndim(self.target) == 1 else (len(self.targets_),)

    def _centred(self) -> bool:
        return self.convention == "classical"

    def _lengths(self) -> Array:
        """Lengths of the whitened targets, of each strip, (S, K)."""
        matrix = np.swapaxes(self.whitening_, -1, -2)
        return np.atleast_2d(np.linalg.norm(self._centred_targets() @ matrix, axis=-1))


class ACEDetector(_TargetDetector):
    r"""Adaptive cosine (or coherence) estimator: the angle to a target, whitened by the background.

    Args:
        target: spectrum of the target, (bands,), or of K targets, (K, bands); each is scored.
        convention: ``"classical"``: the background mean is subtracted from the target too and the
            statistic is squared, as in Kraut and Scharf and in the package ``spectral``; it then
            finds what is opposite to the target as well. ``"paper"``: neither, as in LACE.
        covariance: ``"sample"``, ``"ledoit-wolf"`` or ``"oas"`` (shrunk), ``"robust"`` (minimum
            covariance determinant, slow for large images). The shrunk ones need fewer pixels.
        window: widths (guard, outer) of a window that slides over the image: each pixel's
            background is what lies in the outer and outside the guard window around it. With
            ``covariance`` ``"sample"`` or ``"oas"``.
        columns: each strip of so many columns of an image has a background by itself, as the
            detector elements of a push-broom sensor ask for; with the same covariances.
        false_alarm: the share of background pixels above the threshold, of each target.
        threshold: ``"cfar"``: by the exact null distribution of
            :mod:`torchlace.detection.null`, which needs the sample covariance; ``"empirical"``:
            counted among the pixels of the background; ``"auto"``: the first where it can be.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        batch_size: pixels in a step; by default what suits the device.

    Scores are computed in single precision for pixels that are; statistics always in double.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> image, target = rng.normal(size=(64, 64, 5)), np.array([5.0, 5.0, 0.0, 0.0, 0.0])
        >>> image[10, 20] += 3 * target
        >>> found = ACEDetector(target).fit(image).score_samples(image)
        >>> np.unravel_index(found.argmax(), found.shape)
        (np.int64(10), np.int64(20))
    """

    def _compare(self, pixels: Tensor, targets: Tensor) -> Tensor:
        return ace(pixels, targets, squared=self.convention == "classical")

    def _theory(self, samples: int, fitted: bool) -> float:
        squared = self.convention == "classical"
        sizes = (self.false_alarm, self.n_features_in_, samples)
        return ace_threshold(*sizes, fitted=fitted, squared=squared)


class SMFDetector(_TargetDetector):
    r"""Spectral matched filter: how much of a target there is; 0 at the mean, 1 at the target.

    Args:
        target: spectrum of the target, (bands,), or of K targets, (K, bands).
        convention: ``"classical"``: the background mean is subtracted from the target too;
            ``"paper"``: it is not.
        covariance, columns, false_alarm, threshold, device, batch_size: as in
            :class:`ACEDetector`.
        window: as in :class:`ACEDetector`; thresholds are then counted.

    Example:
        >>> background, target = np.random.default_rng(0).normal(size=(500, 3)), np.ones(3)
        >>> detector = SMFDetector(target).fit(background)
        >>> detector.score_samples([target]).round(6), detector.predict([3 * target])
        (array([1.]), array([ True]))
    """

    def _compare(self, pixels: Tensor, targets: Tensor) -> Tensor:
        return pixels @ (targets / targets.square().sum(-1, keepdim=True)).mT

    def _whiten_and_compare(self, pixels: Tensor, targets: Tensor, matrix: Tensor) -> Tensor:
        # The filter is linear: it is whitened once instead of every pixel.
        return pixels @ (targets / targets.square().sum(-1, keepdim=True) @ matrix).mT

    def _has_theory(self) -> bool:
        # In a window the noise of the output differs from pixel to pixel.
        return super()._has_theory() and self.window is None

    def _units(self) -> Array:
        return self._lengths()

    def _theory(self, samples: int, fitted: bool) -> float:
        return smf_threshold(self.false_alarm, self.n_features_in_, samples, fitted=fitted)


class RXDetector(Detector):
    r"""Reed–Xiaoli anomaly detector: the squared Mahalanobis distance from the background.

    Args:
        covariance, window, columns, false_alarm, threshold, device, batch_size: as in
            :class:`ACEDetector`.

    Example:
        >>> background = np.random.default_rng(0).normal(size=(500, 3))
        >>> detector = RXDetector(false_alarm=0.01).fit(background)
        >>> round(detector.threshold_, 2), detector.predict([[0, 0, 0], [3, 3, 3]])
        (11.53, array([False,  True]))
    """

    def _compare(self, pixels: Tensor, targets: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(pixels, dim=-1, keepdim=True)
        return lengths.square()

    def _theory(self, samples: int, fitted: bool) -> float:
        return rx_threshold(self.false_alarm, self.n_features_in_, samples, fitted=fitted)
