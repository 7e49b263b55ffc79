"""What detectors take and give: conventions, precision, batches, kinds of pixels, covariances."""

import numpy as np
import pytest
import torch
from detection.scenes import correlated, scene
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS, LedoitWolf, MinCovDet

from torchlace.detection import ACEDetector, RXDetector, SMFDetector
from torchlace.functional import ace

IMAGE, TARGET = scene()
DETECTORS = {
    "ace": lambda **options: ACEDetector(TARGET, **options),
    "smf": lambda **options: SMFDetector(TARGET, **options),
    "rx": lambda **options: RXDetector(**options),
}


def pixels():
    return IMAGE.reshape(-1, IMAGE.shape[2])


def scores(detector, X=IMAGE):
    return detector.fit(X).score_samples(X)


@pytest.mark.parametrize("convention", ["classical", "paper"])
def test_conventions_are_those_of_the_ace_statistic(convention):
    classical = convention == "classical"
    flat = torch.from_numpy(pixels())
    covariance = torch.from_numpy(np.cov(pixels().T))
    expected = ace(
        flat,
        torch.from_numpy(TARGET)[None],
        flat.mean(0),
        precision=covariance.inverse(),
        centre_signatures=classical,
        squared=classical,
    )
    found = scores(ACEDetector(TARGET, convention=convention), pixels())
    np.testing.assert_allclose(found, expected[:, 0].numpy(), rtol=1e-7, atol=1e-10)


def test_the_filter_without_centring_the_target():
    mean, inverse = pixels().mean(0), np.linalg.inv(np.cov(pixels().T))
    expected = (pixels() - mean) @ inverse @ TARGET / (TARGET @ inverse @ TARGET)
    found = scores(SMFDetector(TARGET, convention="paper"), pixels())
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", DETECTORS)
def test_all_kinds_of_the_same_pixels_score_alike(name, tmp_path):
    make = DETECTORS[name]
    expected = scores(make())
    assert expected.shape == IMAGE.shape[:2]
    np.save(tmp_path / "image.npy", IMAGE)
    kinds = {
        "list": pixels().tolist(),
        "tensor": torch.from_numpy(IMAGE),
        "needing a gradient": torch.from_numpy(IMAGE).requires_grad_(),
        "memory map": np.load(tmp_path / "image.npy", mmap_mode="r"),
        "foreign bytes": IMAGE.astype(IMAGE.dtype.newbyteorder()),
        "column-major": np.asfortranarray(IMAGE),
        "every second of twice": np.repeat(IMAGE, 2, axis=1)[:, ::2],
    }
    for kind, X in kinds.items():
        found = scores(make(), X)
        np.testing.assert_allclose(found.ravel(), expected.ravel(), rtol=1e-9, err_msg=kind)
    for size in (1, 100, 10**6):
        np.testing.assert_allclose(scores(make(batch_size=size)), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("window", [None, (1, 5)])
def test_single_precision_in_and_out(name, window):
    rng = np.random.default_rng(0)
    image = rng.normal(size=(20, 20, 8)) @ rng.normal(size=(8, 8)) + 5
    double, single = (scores(DETECTORS[name](window=window), image.astype(t)) for t in "df")
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    scale = np.abs(double).max()
    np.testing.assert_allclose(single / scale, double / scale, atol=2e-5)
    assert scores(DETECTORS[name](), torch.from_numpy(image).half()).dtype == np.float32
    foreign = scores(DETECTORS[name](window=window), image.astype(">f4"))
    np.testing.assert_array_equal(foreign, single, strict=True)


@pytest.mark.parametrize("name", DETECTORS)
def test_single_precision_keeps_small_variation_about_a_large_mean(name):
    rng = np.random.default_rng(0)
    image = (1e3 + 0.003 * rng.normal(size=(30, 30, 8))).astype(np.float32)
    double, single = (scores(DETECTORS[name](), image.astype(t)) for t in "df")
    scale = np.abs(double).max()
    np.testing.assert_allclose(single / scale, double / scale, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "estimator"),
    [("ledoit-wolf", LedoitWolf()), ("oas", OAS()), ("robust", MinCovDet(random_state=0))],
)
def test_covariances_of_scikit_learn(name, estimator):
    rng = np.random.default_rng(0)
    background = correlated(rng, 60, 5)
    detector = RXDetector(covariance=name).fit(background)
    found = estimator.fit(background)
    np.testing.assert_allclose(detector.mean_, found.location_)
    np.testing.assert_allclose(detector.covariance_, found.covariance_)
    np.testing.assert_allclose(
        detector.score_samples(background), found.mahalanobis(background), rtol=1e-8
    )


def test_a_robust_background_ignores_a_few_strangers():
    rng = np.random.default_rng(0)
    background = rng.normal(size=(500, 3))
    background[:40] += 20
    plain, robust = (RXDetector(covariance=name).fit(background) for name in ("sample", "robust"))
    assert np.abs(robust.mean_).max() < 0.2 < np.abs(plain.mean_).max()


def test_a_window_with_shrinkage_equals_scikit_learn_around_every_pixel():
    image, target = scene(height=8, width=9, bands=6)
    found = scores(ACEDetector(target, window=(3, 5), covariance="oas"), image)
    rings = {(0, 0): (0, 0), (4, 4): (2, 2), (7, 8): (3, 4), (2, 7): (0, 4)}
    for (row, column), (top, left) in rings.items():
        outer = np.zeros((8, 9), bool)
        outer[top : top + 5, left : left + 5] = True
        inner_top, inner_left = min(max(row - 1, 0), 5), min(max(column - 1, 0), 6)
        outer[inner_top : inner_top + 3, inner_left : inner_left + 3] = False
        ring = image[outer]
        assert len(ring) == 16
        shrunk = OAS().fit(ring)
        y, t = image[row, column] - shrunk.location_, target - shrunk.location_
        p = shrunk.precision_
        expected = (t @ p @ y) ** 2 / ((t @ p @ t) * (y @ p @ y))
        assert found[row, column] == pytest.approx(expected, rel=1e-8)


def test_strips_of_a_wide_image_join_without_a_seam(monkeypatch):
    image, target = scene(height=9, width=60, bands=3)
    detector = ACEDetector(target, window=(1, 5))
    expected = scores(detector, image)
    monkeypatch.setattr("torchlace.detection.window._STRIP_BYTES", 1)
    np.testing.assert_allclose(scores(detector, image), expected, atol=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(-6, 6), st.floats(-3, 3))
def test_affine_maps_of_pixels_and_target_change_nothing(seed, decades, offset):
    rng = np.random.default_rng(seed)
    background, target = correlated(rng, 60, 4), 5 + rng.normal(size=4)
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0] * np.array([1, 1, 1, 10.0**decades])

    def moved(x):
        return x @ turn + offset

    for make in (ACEDetector, SMFDetector):
        found = scores(make(moved(target)), moved(background))
        np.testing.assert_allclose(found, scores(make(target), background), atol=1e-7)
    found, expected = scores(RXDetector(), moved(background)), scores(RXDetector(), background)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_ace_is_blind_to_brightness_and_the_filter_is_linear(seed, factor):
    rng = np.random.default_rng(seed)
    background, target = correlated(rng, 40, 4), 5 + rng.normal(size=4)
    detector = ACEDetector(target).fit(background)
    away = rng.normal(size=(9, 4))
    near, far = (detector.score_samples(detector.mean_ + f * away) for f in (1, factor))
    np.testing.assert_allclose(near, far, atol=1e-8)
    assert near.min() >= 0
    assert near.max() <= 1 + 1e-12
    linear = SMFDetector(target).fit(background)
    output = linear.score_samples(linear.mean_ + factor * (target - linear.mean_)[None])
    np.testing.assert_allclose(output, [factor], rtol=1e-6)
