"""Bad input is an error that says what to do; no score is ever NaN."""

import warnings

import numpy as np
import pytest
import torch
from detection.scenes import correlated, scene
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlace.detection import ACEDetector, RXDetector, SMFDetector

RNG = np.random.default_rng(0)
BACKGROUND = correlated(RNG, 100, 5)
TARGET = RNG.normal(size=5)


def spoilt(value):
    X = BACKGROUND.copy()
    X[3, 1] = X[7, 4] = value
    return X


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("covariance", ["sample", "ledoit-wolf", "oas", "robust"])
def test_pixels_that_are_not_finite_are_named(value, covariance):
    message = "in 2 of 100 background pixels, the first at 3, in 2 of 5 bands: 1, 4"
    with pytest.raises(ValueError, match=message):
        RXDetector(covariance=covariance).fit(spoilt(value))
    detector = ACEDetector(TARGET).fit(BACKGROUND)
    with pytest.raises(ValueError, match=r"in 2 of 100 pixels.*drop the bands"):
        detector.score_samples(spoilt(value))


def test_a_band_of_nan_in_an_image_with_a_window():
    image, target = scene()
    image[..., 2] = np.nan
    for window in (None, (1, 5)):
        detector = ACEDetector(target, window=window, covariance="oas")
        message = r"first at \(row, column\) \(0, 0\), in 1 of 8 bands: 2\."
        with pytest.raises(ValueError, match=message):
            detector.fit(image).score_samples(image)


@pytest.mark.parametrize("covariance", ["sample", "ledoit-wolf"])
def test_a_pixel_of_an_image_is_named_by_row_and_column(covariance):
    image, _ = scene()
    image[3, 7] = np.inf
    message = r"in 1 of 713 background pixels, the first at \(row, column\) \(3, 7\), and in every"
    with pytest.raises(ValueError, match=message):
        RXDetector(covariance=covariance).fit(image)
    detector = RXDetector().fit(scene()[0])
    with pytest.raises(ValueError, match=r"1 of 713 pixels, the first at \(row, column\) \(3, 7\)"):
        detector.score_samples(image)


def test_fewer_pixels_than_bands():
    few = correlated(RNG, 8, 20)
    with pytest.raises(ValueError, match=r"8 background pixels in 20 bands.*ledoit-wolf"):
        RXDetector().fit(few)
    for covariance in ("ledoit-wolf", "oas"):
        assert np.isfinite(RXDetector(covariance=covariance).fit(few).score_samples(few)).all()


def test_as_many_pixels_as_bands_are_too_few_and_one_more_is_enough():
    with pytest.raises(ValueError, match="no invertible covariance"):
        RXDetector().fit(correlated(RNG, 6, 6))
    assert np.isfinite(RXDetector().fit(correlated(RNG, 7, 6)).threshold_)


@pytest.mark.parametrize("constant", [0.0, 0.3, 1e6])
def test_a_band_that_does_not_vary_is_named(constant):
    X = BACKGROUND.copy()
    X[:, 2] = constant
    with pytest.raises(ValueError, match=r"1 of 5 bands do not vary over the background \(2\)"):
        RXDetector().fit(X)


@pytest.mark.parametrize("constant", [0.0, 0.3, 1e6])
def test_a_band_that_does_not_vary_is_named_under_a_window_too(constant):
    image, target = scene()
    image[..., 2] = constant
    with pytest.raises(ValueError, match=r"1 of 8 bands do not vary over the image \(2\): drop"):
        ACEDetector(target, window=(1, 5), threshold="cfar").fit(image).score_samples(image)


def test_an_image_without_bands():
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        RXDetector().fit(scene()[0][..., :0])


def test_bands_that_repeat_others():
    X = np.concatenate([BACKGROUND, BACKGROUND[:, :1] + BACKGROUND[:, 1:2]], axis=1)
    with pytest.raises(ValueError, match="is singular: some bands are sums of others"):
        RXDetector().fit(X)
    assert np.isfinite(RXDetector(covariance="oas").fit(X).score_samples(X)).all()


def test_pixels_that_are_all_the_same():
    for covariance in ("sample", "ledoit-wolf", "oas"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match="5 of 5 bands do not vary"):
                RXDetector(covariance=covariance).fit(np.full((50, 5), 0.1))


@pytest.mark.parametrize("make", [ACEDetector, SMFDetector])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        (np.ones(4), r"shape \(5,\) or \(K, 5\), one number for each band.*got \(4,\)"),
        (np.ones((2, 3, 5)), r"got \(2, 3, 5\)"),
        (np.empty((0, 5)), r"got \(0, 5\)"),
        ([1, 2, np.nan, 4, 5], "target holds NaN or infinite values in 2: drop"),
        (3.0, r"got \(\)"),
    ],
)
def test_wrong_targets(make, target, message):
    with pytest.raises(ValueError, match=message):
        make(target).fit(BACKGROUND)


@pytest.mark.parametrize(
    "target",
    [TARGET + 1j, torch.ones(5, dtype=torch.complex64), ["a"] * 5, None],
    ids=["complex", "tensor", "text", "nothing"],
)
def test_targets_that_are_no_real_numbers(target):
    with pytest.raises(TypeError, match="target must hold real numbers, got"):
        ACEDetector(target).fit(BACKGROUND)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_tensors_are_targets_without_a_warning(dtype):
    target = torch.tensor([1.0, 2, 3, 4, 6], dtype=dtype, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ACEDetector(target).fit(BACKGROUND).score_samples(BACKGROUND)
    expected = ACEDetector([1, 2, 3, 4, 6]).fit(BACKGROUND).score_samples(BACKGROUND)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("make", [ACEDetector, SMFDetector])
def test_a_target_of_zero_has_no_direction_in_a_window_either(make):
    image, target = scene()
    detector = make([target, 0 * target], convention="paper", window=(1, 5))
    with pytest.raises(ValueError, match="target 1 is zero"):
        detector.fit(image)


def test_a_target_at_the_background_mean_can_not_be_found():
    for make in (ACEDetector, SMFDetector):
        with pytest.raises(ValueError, match="target 1 is the mean of the background"):
            make([TARGET, BACKGROUND.mean(0)]).fit(BACKGROUND)
    zero = ACEDetector(np.zeros(5), convention="paper")
    with pytest.raises(ValueError, match="target 0 is zero"):
        zero.fit(BACKGROUND)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "ledoit"}, "did you mean 'ledoit-wolf'"),
        ({"threshold": "emprical"}, "did you mean 'empirical'"),
        ({"convention": "classic"}, "did you mean 'classical'"),
        ({"false_alarm": 0.0}, "false_alarm must lie in"),
        ({"false_alarm": 2}, "false_alarm must lie in"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"window": (1, 5)}, r"an image \(H, W, bands\)"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        ACEDetector(TARGET, **options).fit(BACKGROUND)


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        ((5, 3), {}, "the guard smaller than the outer"),
        ((2, 5), {}, "two odd widths"),
        ((1, 25), {}, r"a window of 25 pixels does not fit into an image of \(23, 31\)"),
        ((1, 3), {}, "holds 8 background pixels, not more than 8 bands: widen it, or use cov"),
        ((1, 5), {"covariance": "robust"}, 'goes with covariance="sample" or covariance="oas"'),
    ],
)
def test_wrong_windows(window, options, message):
    with pytest.raises(ValueError, match=message):
        RXDetector(window=window, **options).fit(scene()[0])
    with pytest.raises(TypeError, match="a pair"):
        RXDetector(window=5).fit(scene()[0])


@pytest.mark.parametrize(("covariance", "row"), [("sample", 11), ("oas", 12)])
def test_a_flat_part_of_an_image_is_named(covariance, row):
    image, target = scene()
    image[10:, 20:] = 0.4
    detector = ACEDetector(target, window=(1, 5), covariance=covariance, threshold="cfar")
    message = rf"around pixel \({row}, 22\) has a singular covariance"
    with pytest.raises(ValueError, match=message):
        detector.fit(image).score_samples(image)


def test_wrong_widths_and_shapes():
    detector = RXDetector().fit(BACKGROUND)
    with pytest.raises(ValueError, match="X has 4 features, but RXDetector is expecting 5"):
        detector.score_samples(BACKGROUND[:, :4])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        detector.score_samples(BACKGROUND[0])
    with pytest.raises(ValueError, match=r"image \(H, W, bands\), got \(10, 10, 1, 5\)"):
        detector.score_samples(BACKGROUND.reshape(10, 10, 1, 5))
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        RXDetector().fit(BACKGROUND[:1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for what there is")
def test_a_device_that_is_not_there():
    with pytest.raises(ValueError, match='no CUDA device here: use device="cpu"'):
        RXDetector(device="cuda").fit(BACKGROUND)


@pytest.mark.parametrize(
    ("device", "message"), [("gpu", "unknown device 'gpu': use"), ("mps", "which mps lacks")]
)
def test_devices_that_can_not_be_used(device, message):
    with pytest.raises(ValueError, match=message):
        RXDetector(device=device).fit(BACKGROUND)


def test_numbers_too_large_to_square():
    with pytest.raises(ValueError, match="too large to be squared: rescale"):
        RXDetector().fit(BACKGROUND * 1e160)
    detector = RXDetector().fit(BACKGROUND)
    with pytest.raises(ValueError, match="overflow"):
        detector.score_samples(np.full((1, 5), 1e300))


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(2, 12),
    st.integers(2, 8),
    st.sampled_from(["sample", "oas", "ledoit-wolf"]),
    st.integers(0, 3),
)
def test_scores_are_finite_or_there_is_an_error(seed, count, bands, covariance, rank):
    """Backgrounds of few pixels and low rank, far from and near to singular."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, max(rank, 1))) @ rng.normal(size=(max(rank, 1), bands))
    X += (0, 1e-9, 1e-3, 1.0)[rank] * rng.normal(size=X.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for detector in (ACEDetector(np.ones(bands)), SMFDetector(np.ones(bands)), RXDetector()):
            try:
                found = detector.set_params(covariance=covariance).fit(X).score_samples(X)
            except ValueError:
                continue
            assert np.isfinite(found).all()
