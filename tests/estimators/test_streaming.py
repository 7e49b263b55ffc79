"""partial_fit: samples that come in parts."""

import numpy as np
import pytest
from estimators.data import blobs, digits

from torchlace.estimators import HeadClassifier, LACEClassifier


def stream(model, X, y, rows, passes=1, **options):
    for _ in range(passes):
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            model.partial_fit(X[part], y[part], classes=np.unique(y), **options)
    return model


def test_one_pass_over_the_digits():
    X, T, y, t = digits()
    assert stream(LACEClassifier(random_state=0), X, y, 100).score(T, t) > 0.95


@pytest.mark.parametrize(
    "model",
    [
        LACEClassifier(hidden=32, random_state=0),
        HeadClassifier(random_state=0, learning_rate=0.01),
        HeadClassifier("cosface", hidden=32, random_state=0),
    ],
    ids=str,
)
def test_several_passes_of_trained_layers(model):
    X, T, y, t = digits(5)
    stream(model, X, y, 100, passes=6)
    assert model.score(T, t) > 0.93
    assert model.n_iter_ == 6 * -(-len(X) // 100)


def test_a_fit_forgets_the_stream():
    X, y = blobs()
    model = stream(LACEClassifier(random_state=0), X + 5, y, 30)
    expected = LACEClassifier(random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), expected)


def test_parts_may_have_another_precision():
    X, y = blobs()
    model = LACEClassifier(random_state=0).fit(X.astype(np.float32), y)
    model.partial_fit(X, y)
    assert model.transform(X).dtype == np.float32
