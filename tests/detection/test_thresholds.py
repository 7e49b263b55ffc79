"""Thresholds: by theory and by counting."""

import numpy as np
import pytest
from detection.scenes import correlated

from torchlace.detection import ACEDetector, RXDetector, SMFDetector

BANDS = 6
MANY = 40_000


def gaussian(count, seed):
    rng = np.random.default_rng(7)
    mixing = rng.normal(size=(BANDS, BANDS))
    return np.random.default_rng(seed).normal(size=(count, BANDS)) @ mixing + 3


TARGET = gaussian(1, 99)[0] * 2
DETECTORS = {
    "ace": lambda **options: ACEDetector(TARGET, **options),
    "ace, paper": lambda **options: ACEDetector(TARGET, convention="paper", **options),
    "smf": lambda **options: SMFDetector(TARGET, **options),
    "rx": lambda **options: RXDetector(**options),
}


@pytest.mark.parametrize("name", DETECTORS)
@pytest.mark.parametrize("threshold", ["cfar", "empirical"])
def test_new_pixels_of_the_background_are_found_at_the_false_alarm_rate(name, threshold):
    detector = DETECTORS[name](false_alarm=0.01, threshold=threshold).fit(gaussian(20_000, 0))
    new = gaussian(MANY, 1)
    found = detector.predict(new)
    assert found.dtype == bool
    assert abs(found.mean() - 0.01) < 5 * np.sqrt(0.01 / 20_000)
    np.testing.assert_array_equal(found, detector.decision_function(new) > 0)


@pytest.mark.parametrize("name", DETECTORS)
def test_the_own_pixels_of_a_small_background_are_found_at_the_rate(name):
    # 15 pixels in 6 bands: the threshold for new pixels would find hardly any.
    make, rate = DETECTORS[name], 0.05
    own = np.concatenate([make(false_alarm=rate).fit_predict(gaussian(15, s)) for s in range(800)])
    assert abs(own.mean() - rate) < 5 * np.sqrt(rate / len(own))
    detector = make(false_alarm=rate).fit(gaussian(15, 0))
    assert detector.threshold_ > detector.fitted_threshold_


def test_counting_leaves_no_more_than_the_rate_above():
    background = gaussian(1000, 0)
    for rate in (0.001, 0.0105, 0.5):
        detector = RXDetector(false_alarm=rate, threshold="empirical").fit(background)
        assert detector.predict(background).mean() <= rate
        assert detector.predict(background).mean() > rate - 0.002


def test_each_target_has_its_own_threshold():
    targets = np.stack([TARGET, 3 * TARGET, TARGET[::-1]])
    background, new = gaussian(20_000, 0), gaussian(MANY, 1)
    for threshold in ("cfar", "empirical"):
        detector = SMFDetector(targets, false_alarm=0.01, threshold=threshold).fit(background)
        assert detector.threshold_.shape == (3,)
        assert len(set(detector.threshold_)) == 3
        found = detector.predict(new)
        assert found.shape == (MANY, 3)
        assert np.abs(found.mean(0) - 0.01).max() < 5 * np.sqrt(0.01 / 20_000)
    single = SMFDetector(targets[1], false_alarm=0.01).fit(background)
    paired = SMFDetector(targets, false_alarm=0.01).fit(background)
    assert single.threshold_ == pytest.approx(paired.threshold_[1])


def test_in_a_window_every_ring_is_the_background_of_a_new_pixel():
    rng = np.random.default_rng(0)
    image = rng.normal(size=(150, 150, 4)) @ rng.normal(size=(4, 4))
    target = np.array([50.0, 1, 1, 1])
    for detector in (ACEDetector(target, window=(1, 5)), RXDetector(window=(1, 5))):
        detector.set_params(false_alarm=0.01)
        own = detector.fit_predict(image)
        assert detector.threshold_ == detector.fitted_threshold_
        # Rings overlap, so the pixels are not independent: a wider margin.
        assert abs(own.mean() - 0.01) < 0.004


def test_auto_counts_where_there_is_no_theory():
    background = gaussian(2000, 0)
    assert "quantile_" not in vars(RXDetector().fit(background))
    for options in ({"covariance": "oas"}, {"covariance": "ledoit-wolf"}):
        counted = RXDetector(**options).fit(background)
        assert counted.threshold_ == counted.quantile_
    image = background.reshape(40, 50, BANDS)
    assert SMFDetector(TARGET, window=(1, 5)).fit(image).threshold_ > 0


def test_impossible_thresholds_are_errors_but_scores_are_not():
    background = correlated(np.random.default_rng(0), 50, 4)
    few = RXDetector(false_alarm=1e-3, threshold="empirical").fit(background)
    with pytest.raises(ValueError, match="can't be counted among 50 background pixels: give 1000"):
        few.predict(background)
    shrunk = RXDetector(covariance="oas", threshold="cfar").fit(background)
    with pytest.raises(ValueError, match='use threshold="empirical"'):
        shrunk.decision_function(background)
    for detector in (few, shrunk):
        assert np.isfinite(detector.score_samples(background)).all()
