"""Scikit-learn's own checks of an estimator."""

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from torchlace.estimators import HeadClassifier, LACEClassifier

pytestmark = pytest.mark.filterwarnings(
    f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning"
)

# Scores are cosines: without a bias no weight makes one class win everywhere.
NO_BIAS = {"check_class_weight_classifiers": "cosines have no bias"}


@parametrize_with_checks([LACEClassifier()])
def test_lace(estimator, check):
    check(estimator)


@parametrize_with_checks([HeadClassifier(learning_rate=0.03, max_iter=40)])
def test_softmax(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [LACEClassifier(hidden=8, max_iter=20)], expected_failed_checks=lambda _: NO_BIAS
)
def test_behind_a_hidden_layer(estimator, check):
    check(estimator)
