"""A fit that fails leaves a detector as it was."""

import numpy as np
import pytest
from detection.scenes import correlated, scene
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

from torchlace.detection import MIACE, ACEDetector, OpenSet, RXDetector

RNG = np.random.default_rng(0)
BACKGROUND, PIXELS = correlated(RNG, 100, 5), correlated(RNG, 9, 5)
IMAGE, TARGET = scene()


def test_a_detector_keeps_its_old_background():
    detector = ACEDetector(np.ones(5), threshold="empirical", false_alarm=0.1).fit(BACKGROUND)
    before, names = detector.decision_function(PIXELS), set(vars(detector))
    faults = {
        "target of another width": correlated(RNG, 100, 4),
        "too few pixels": correlated(RNG, 4, 5),
        "NaN": np.where(np.arange(5) == 2, np.nan, BACKGROUND),
        "the target is its mean": BACKGROUND - BACKGROUND.mean(0) + 1,
    }
    for name, X in faults.items():
        with pytest.raises(ValueError):
            detector.fit(X)
        assert set(vars(detector)) == names, name
        np.testing.assert_array_equal(detector.decision_function(PIXELS), before, err_msg=name)


def test_a_detector_in_a_window_too():
    detector = RXDetector(window=(1, 5), threshold="empirical", false_alarm=0.1).fit(IMAGE)
    before = detector.decision_function(IMAGE)
    flat = np.where(np.arange(31)[:, None] > 9, 0.4, IMAGE)
    for X in (flat, IMAGE[:4, :, :3]):
        with pytest.raises(ValueError):
            detector.fit(X)
    np.testing.assert_array_equal(detector.decision_function(IMAGE), before)


def test_what_an_older_fit_left_goes():
    detector = RXDetector().fit(IMAGE)
    detector.set_params(window=(1, 5), threshold="cfar").fit(IMAGE)
    assert not hasattr(detector, "mean_")
    assert not hasattr(detector, "whitening_")


def test_a_detector_that_failed_at_once_is_not_fitted():
    detector = ACEDetector(np.ones(4))
    with pytest.raises(ValueError):
        detector.fit(BACKGROUND)
    assert not [name for name in vars(detector) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        detector.score_samples(PIXELS)


def test_a_learned_signature_stays():
    bags = [correlated(RNG, 20, 5) for _ in range(6)]
    model = MIACE(covariance="oas").fit(bags, [1, 1, 1, 0, 0, 0])
    before, names = model.score_samples(PIXELS), set(vars(model))
    constant = [np.ones((20, 4)), *([correlated(RNG, 20, 4)] * 2)]
    with pytest.raises(ValueError):
        model.set_params(covariance="sample").fit(constant, [0, 1, 1])
    model.set_params(covariance="oas", false_alarm=2.0)
    with pytest.raises(ValueError, match="false_alarm"):
        model.fit(bags, [0, 0, 0, 1, 1, 1])  # found only after the signature
    assert set(vars(model)) == names
    np.testing.assert_array_equal(model.score_samples(PIXELS), before)


def test_an_open_set_keeps_its_statistics_with_its_threshold():
    labels = np.arange(100) % 3
    X = BACKGROUND + 3 * np.eye(5)[labels]
    guarded = OpenSet(LogisticRegression().fit(X, labels)).fit(X, labels)
    before = guarded.decision_function(PIXELS)
    with pytest.raises(ValueError, match="do not vary"):
        guarded.fit(0 * X, labels)
    np.testing.assert_array_equal(guarded.decision_function(PIXELS), before)
    guarded.set_params(score="energy", unknown=1)
    with pytest.raises(ValueError, match="one of the model's classes"):
        guarded.fit(X, labels)
    guarded.set_params(score="nearest-neighbours", unknown="auto")
    np.testing.assert_array_equal(guarded.decision_function(PIXELS), before)
