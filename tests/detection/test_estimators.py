"""The conventions of scikit-learn."""

import pickle
import warnings

import numpy as np
import pytest
from detection.scenes import correlated
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from torchlace.detection import MIACE, ACEDetector, RXDetector, SMFDetector

BACKGROUND = correlated(np.random.default_rng(0), 200, 3)
TARGET = [9.0, 5.0, 4.0]


class AnyWidth:
    """A target that fits whatever data check_estimator makes up."""

    def _targets(self, bands):
        return np.arange(1.0, bands + 1)[None]


class AnyACE(AnyWidth, ACEDetector):
    def __init__(self, target=(), covariance="sample", false_alarm=1e-3):
        super().__init__(target, covariance=covariance, false_alarm=false_alarm)


class AnySMF(AnyWidth, SMFDetector):
    def __init__(self, target=(), covariance="sample", false_alarm=1e-3):
        super().__init__(target, covariance=covariance, false_alarm=false_alarm)


@pytest.mark.parametrize(
    "detector",
    [RXDetector(), RXDetector(covariance="oas", false_alarm=0.2), AnyACE(), AnySMF()],
    ids=repr,
)
def test_scikit_learn_s_own_checks(detector):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(detector)


@pytest.mark.parametrize(
    "detector", [ACEDetector(TARGET), SMFDetector(TARGET), RXDetector()], ids=repr
)
def test_clones_and_pickles(detector):
    detector.set_params(false_alarm=0.02)
    expected = detector.fit(BACKGROUND).score_samples(BACKGROUND)
    copy = clone(detector)
    assert copy.get_params() == detector.get_params()
    with pytest.raises(NotFittedError):
        copy.score_samples(BACKGROUND)
    with pytest.raises(NotFittedError):
        _ = copy.threshold_
    np.testing.assert_array_equal(copy.fit(BACKGROUND).score_samples(BACKGROUND), expected)
    again = pickle.loads(pickle.dumps(detector))
    np.testing.assert_array_equal(again.predict(BACKGROUND), detector.predict(BACKGROUND))


def test_in_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), RXDetector()).fit(BACKGROUND)
    expected = RXDetector().fit(BACKGROUND).score_samples(BACKGROUND)
    np.testing.assert_allclose(pipeline.score_samples(BACKGROUND), expected)


def test_learned_signatures_clone_and_pickle():
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(30, 8)) for _ in range(6)]
    model = MIACE().fit(bags, [1, 1, 1, 0, 0, 0])
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(bags[0]), model.score_samples(bags[0]))
    with pytest.raises(NotFittedError):
        clone(model).score_samples(bags[0])
