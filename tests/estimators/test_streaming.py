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


def test_the_background_of_parts_is_that_of_all():
    X, _, y, _ = digits()
    parts = stream(LACEClassifier(shrinkage=0.1), X, y, 97)
    whole = LACEClassifier(shrinkage=0.1, scale=8.0).fit(X, y)
    for name in ("mean", "precision"):
        found, expected = (getattr(m.head_.background, name) for m in (parts, whole))
        np.testing.assert_allclose(found, expected, atol=1e-8 * expected.abs().max())
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-6)


def test_shrinkage_of_parts_is_near_that_of_all():
    X, _, y, _ = digits()
    parts = stream(LACEClassifier(), X, y, 97)
    whole = LACEClassifier(shrinkage="ledoit-wolf", scale=8.0).fit(X, y)
    assert whole.shrinkage_ / 3 < parts.shrinkage_ < whole.shrinkage_ * 3


def test_one_pass_over_the_digits():
    X, T, y, t = digits()
    assert stream(LACEClassifier(random_state=0), X, y, 100).score(T, t) > 0.92


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


def test_classes_may_come_late():
    X, y = blobs(rows=300, spread=0.5)
    order = np.argsort(y, kind="stable")
    model = LACEClassifier(random_state=0)
    model.partial_fit(X[order][:100], y[order][:100], classes=[0, 1, 2])
    assert np.isfinite(model.predict_proba(X)).all()
    stream(model, X[order], y[order], 50, passes=10)
    assert model.score(X, y) > 0.9


def test_it_goes_on_from_a_fit():
    X, T, y, t = digits()
    model = LACEClassifier(random_state=0).fit(X[:400], y[:400])
    before, scale = model.score(T, t), model.scale_
    stream(model, X[400:], y[400:], 100)
    assert model.score(T, t) > before
    assert model.scale_ == scale
    whole = LACEClassifier(shrinkage=model.shrinkage_, scale=scale).fit(X, y)
    np.testing.assert_allclose(model.transform(T), whole.transform(T), atol=1e-6)


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


def test_weights_count():
    X, y = blobs(classes=2, spread=2.0)
    heavy = LACEClassifier(scale=5.0, class_weight={0: 1.0, 1: 50.0}, random_state=0)
    light = LACEClassifier(scale=5.0, random_state=0)
    for model in (heavy, light):
        stream(model, X, y, 40, passes=20)
    assert (heavy.predict(X) == 1).mean() > (light.predict(X) == 1).mean()
    twice = LACEClassifier(random_state=0).partial_fit(X, y, [0, 1], sample_weight=np.full(120, 2))
    once = LACEClassifier(random_state=0).partial_fit(X, y, [0, 1])
    np.testing.assert_allclose(twice.predict_proba(X), once.predict_proba(X), atol=1e-6)
