"""Windows around pixels that outshine all others."""

import numpy as np
import pytest
from detection.scenes import correlated
from sklearn.covariance import OAS
from spectral.algorithms.detectors import ACE, RX, MatchedFilter
from spectral.algorithms.spatial import map_outer_window_stats

from torchlace.detection import ACEDetector, RXDetector, SMFDetector

WINDOW = (3, 9)
PLACE = (8, 11)


def glaring(times, bands=6):
    """An image, a target, and one pixel so many deviations away from the others."""
    rng = np.random.default_rng(0)
    image = correlated(rng, 20 * 22, bands).reshape(20, 22, bands)
    away = rng.normal(size=bands)
    image[PLACE] += times * image.std() * away / np.linalg.norm(away)
    return image, rng.normal(size=bands) * 3


def ring(image, row, column):
    """Which pixels are the background of one."""
    inside = np.zeros(image.shape[:2], dtype=bool)
    for size, value in zip(reversed(WINDOW), (True, False), strict=True):
        top, left = (
            min(max(place - size // 2, 0), length - size)
            for place, length in zip((row, column), inside.shape, strict=True)
        )
        inside[top : top + size, left : left + size] = value
    return inside


def by_singular_values(image, target):
    """ACE, matched filter and RX, without ever forming a covariance, which would lose digits."""
    scores = np.empty((3, *image.shape[:2]))
    for place in np.ndindex(image.shape[:2]):
        pixels = image[ring(image, *place)]
        mean = pixels.mean(0)
        _, values, axes = np.linalg.svd(pixels - mean, full_matrices=False)
        y, t = (
            axes @ (v - mean) / values * np.sqrt(len(pixels) - 1) for v in (image[place], target)
        )
        scores[:, *place] = (y @ t) ** 2 / (y @ y) / (t @ t), y @ t / (t @ t), y @ y
    return scores


def detectors(target):
    kinds = {"window": WINDOW, "threshold": "cfar"}
    return ACEDetector(target, **kinds), SMFDetector(target, **kinds), RXDetector(**kinds)


@pytest.mark.parametrize("times", [3e3, 3e5, 3e7])
def test_a_glaring_pixel_costs_no_digits_in_its_windows(times):
    image, target = glaring(times)
    for detector, expected in zip(
        detectors(target), by_singular_values(image, target), strict=True
    ):
        found = detector.fit(image).score_samples(image)
        np.testing.assert_allclose(
            found, expected, rtol=1e-8, atol=1e-8, err_msg=type(detector).__name__
        )


@pytest.mark.parametrize("times", [3e3, 3e5, 3e7])
def test_and_none_in_other_windows_which_equal_those_of_spectral(times):
    image, target = glaring(times)
    without = np.array([not ring(image, *place)[PLACE] for place in np.ndindex(image.shape[:2])])
    functions = (
        lambda b, x: ACE(target, b)(x),
        lambda b, x: MatchedFilter(b, target)(x).item(),
        lambda b, x: RX(b)(x),
    )
    for detector, function in zip(detectors(target), functions, strict=True):
        found = detector.fit(image).score_samples(image)
        expected = map_outer_window_stats(function, image, *WINDOW, dtype=np.float64)
        pairs = (values.ravel()[without] for values in (found, expected))
        np.testing.assert_allclose(*pairs, rtol=1e-8, atol=1e-8)


def test_a_glaring_pixel_in_a_shrunk_background():
    image, _ = glaring(3e5)
    found = RXDetector(window=WINDOW, covariance="oas").fit(image).score_samples(image)
    for place in ((5, 8), (8, 8), PLACE, (0, 0)):
        known = OAS().fit(image[ring(image, *place)])
        expected = known.mahalanobis(image[place][None])[0]
        assert found[place] == pytest.approx(expected, rel=1e-8)


def test_more_glaring_pixels_than_fit_into_memory_at_once(monkeypatch):
    image, target = glaring(3e5)
    rng = np.random.default_rng(1)
    image[3::5, 2::6] *= 1e5 * rng.random((4, 4, 1))
    expected = by_singular_values(image, target)[2]
    monkeypatch.setattr("torchlace.detection.window._STRIP_BYTES", 1)
    found = RXDetector(window=WINDOW).fit(image).score_samples(image)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_bands_that_repeat_others_are_found_beside_a_glaring_pixel_too():
    image, _ = glaring(3e5)
    image[..., 4] = image[..., 1] + image[..., 2]
    with pytest.raises(ValueError, match=r"pixel \(0, 0\) has a singular covariance"):
        RXDetector(window=WINDOW).fit(image).score_samples(image)
    image = image[4:13, 7:16]  # only windows that hold it
    with pytest.raises(ValueError, match=r"pixel \(0, 0\) has a singular covariance"):
        RXDetector(window=WINDOW).fit(image).score_samples(image)
