"""The detectors against the package spectral."""

import numpy as np
import pytest
import spectral
from detection.scenes import correlated, scene
from spectral.algorithms.detectors import ACE, RX, MatchedFilter
from spectral.algorithms.spatial import map_outer_window_stats

from torchlace.detection import ACEDetector, RXDetector, SMFDetector

spectral.settings.show_progress = False
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


def cases():
    rng = np.random.default_rng(1)
    random = correlated(rng, 40 * 30, 12).reshape(40, 30, 12)
    steep = random * np.logspace(-1, 1, 12)
    return {
        "random": (random, random[3, 4] + 1),
        "bands of different size": (steep, steep[3, 4] * 1.1),
        "structured": scene(),
        "counts": ((1000 * scene()[0]).astype(np.uint16), 1000 * scene()[1]),
    }


@pytest.mark.parametrize("case", cases())
def test_equal_to_spectral(case):
    image, target = cases()[case]
    real = image.astype(float)
    pairs = [
        (ACEDetector(target), spectral.ace(real, target)),
        (SMFDetector(target), spectral.matched_filter(real, target)),
        (RXDetector(), spectral.rx(real)),
    ]
    for detector, expected in pairs:
        found = detector.fit(image).score_samples(image)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, err_msg=type(detector).__name__, **CLOSE)


def test_equal_to_spectral_for_pixels_of_another_background():
    rng = np.random.default_rng(0)
    background, pixels = correlated(rng, 500, 6), correlated(rng, 50, 6)
    target = rng.normal(size=6)
    known = spectral.calc_stats(background)
    pairs = [
        (ACEDetector(target), spectral.ace(pixels, target, background=known)),
        (SMFDetector(target), spectral.matched_filter(pixels, target, background=known)[:, 0]),
        (RXDetector(), spectral.rx(pixels, background=known)),
    ]
    for detector, expected in pairs:
        found = detector.fit(background).score_samples(pixels)
        np.testing.assert_allclose(found, expected, err_msg=type(detector).__name__, **CLOSE)


def test_several_targets_are_scored_each():
    image, target = scene()
    targets = np.stack([target, image[0, 0] + 0.1, image[9, 9] * 2])
    found = ACEDetector(targets).fit(image).score_samples(image)
    np.testing.assert_allclose(found, spectral.ace(image, list(targets)), **CLOSE)
    filtered = SMFDetector(targets).fit(image).score_samples(image)
    for number, each in enumerate(targets):
        expected = spectral.matched_filter(image, each)
        np.testing.assert_allclose(filtered[..., number], expected, **CLOSE)


@pytest.mark.parametrize("case", cases())
def test_equal_to_spectrals_own_windows_as_far_as_its_single_precision_goes(case):
    image, target = cases()[case]
    real = image.astype(float)
    pairs = [
        (ACEDetector(target, window=(3, 9)), spectral.ace(real, target, window=(3, 9))),
        (RXDetector(window=(3, 9)), spectral.rx(real, window=(3, 9))),
    ]
    for detector, expected in pairs:
        assert expected.dtype == np.float32
        found = detector.fit(real).score_samples(real)
        np.testing.assert_allclose(found, expected, rtol=2.0**-24 + 1e-9, atol=1e-9)


@pytest.mark.parametrize("window", [(1, 5), (3, 9), (5, 11)])
def test_equal_to_spectral_in_a_window(window):
    # spectral.rx(window=...) itself rounds to single precision.
    image, target = scene(height=13, width=15, bands=4)

    def slide(function):
        return map_outer_window_stats(function, image, *window, dtype=np.float64)

    pairs = [
        (ACEDetector(target, window=window), slide(lambda b, x: ACE(target, b)(x))),
        (
            SMFDetector(target, window=window),
            slide(lambda b, x: MatchedFilter(b, target)(x).item()),
        ),
        (RXDetector(window=window), slide(lambda b, x: RX(b)(x))),
    ]
    for detector, expected in pairs:
        found = detector.fit(image).score_samples(image)
        np.testing.assert_allclose(found, expected, err_msg=type(detector).__name__, **CLOSE)
