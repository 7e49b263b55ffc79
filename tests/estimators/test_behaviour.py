"""What users rely on: seeds, weights, labels of any type, warm starts, inputs of any kind."""

import numpy as np
import pytest
import torch
from estimators.data import blobs, digits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import torchlace as tl
from torchlace.estimators import HeadClassifier, LACEClassifier, samples

FIXED = LACEClassifier(random_state=0)
BEHIND_LAYERS = LACEClassifier(hidden=16, max_iter=15, random_state=0)
ARCFACE = HeadClassifier("arcface", max_iter=15, random_state=0)
EVERY = [FIXED, BEHIND_LAYERS, ARCFACE]
unconverged = pytest.mark.filterwarnings("ignore:the loss was still falling")


def fresh(model, **parameters):
    return type(model)(**{**model.get_params(), **parameters})


def test_as_good_as_logistic_regression_on_digits():
    X, T, y, t = digits()
    rival = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    model = LACEClassifier(random_state=0).fit(X, y)
    assert model.score(T, t) > rival.score(T, t) - 0.005
    assert log_loss(t, model.predict_proba(T)) < 1.2 * log_loss(t, rival.predict_proba(T))


def test_ahead_of_it_behind_a_hidden_layer():
    X, T, y, t = digits()
    rival = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y)
    model = LACEClassifier(hidden=128, random_state=0, max_iter=60)
    assert model.fit(X, y).score(T, t) >= rival.score(T, t)


def test_a_class_in_the_middle_needs_the_intercept():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = rng.standard_normal((300, 2)) * 0.3 + 3 * (y - 1)[:, None]
    assert LACEClassifier(random_state=0).fit(X, y).score(X, y) > 0.98
    assert LACEClassifier(fit_intercept=False, random_state=0).fit(X, y).score(X, y) < 0.9


@unconverged
@pytest.mark.parametrize("name", tl.heads.names())
def test_every_head_learns(name):
    X, y = blobs(rows=150, classes=2, spread=0.3)
    model = HeadClassifier(name, hidden=8, learning_rate=0.01, max_iter=60, random_state=0)
    assert model.fit(X, y).score(X, y) > 0.9
    assert model.transform(X).shape == (150, 8)


@unconverged
@pytest.mark.parametrize("model", EVERY, ids=str)
def test_seeds_decide_everything(model):
    X, y = blobs(spread=2.0)
    before = torch.get_rng_state()
    first = fresh(model).fit(X, y).predict_proba(X)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    np.testing.assert_array_equal(fresh(model).fit(X, y).predict_proba(X), first)
    other = fresh(model, random_state=1).fit(X, y).predict_proba(X)
    assert not np.array_equal(other, first)


@unconverged
@pytest.mark.parametrize("model", EVERY, ids=str)
def test_order_copies_and_weights(model):
    X, y = blobs(spread=2.0)
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 4, len(y))
    expected = fresh(model).fit(X, y, sample_weight=counts).predict_proba(X)
    again = rng.permutation(np.repeat(np.arange(len(y)), counts))
    np.testing.assert_array_equal(fresh(model).fit(X[again], y[again]).predict_proba(X), expected)
    scaled = fresh(model).fit(X, y, sample_weight=counts / 64).predict_proba(X)
    np.testing.assert_allclose(scaled, expected, atol=1e-6)


@unconverged
@pytest.mark.parametrize("model", [FIXED, fresh(BEHIND_LAYERS, max_iter=60)], ids=str)
def test_balanced_weights_find_the_rare_class(model):
    rng = np.random.default_rng(0)
    y = (np.arange(600) % 20 == 0).astype(int)
    X = rng.standard_normal((600, 6)) + 0.8 * y[:, None]
    plain, balanced = (fresh(model, class_weight=w).fit(X, y) for w in (None, "balanced"))
    assert recall_score(y, balanced.predict(X)) > recall_score(y, plain.predict(X)) + 0.2
    assert balanced.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean() + 0.1
    by_hand = fresh(model, class_weight={0: 1.0, 1: 19.0}).fit(X, y)
    np.testing.assert_allclose(by_hand.predict_proba(X), balanced.predict_proba(X), atol=1e-3)


LABELS = {
    "strings": ["cat", "dog", "eel"],
    "objects": np.array(["b", "a", "c"], dtype=object),
    "gaps": [-7, 3, 1000],
    "floats": [0.0, 2.0, 5.0],
}


@pytest.mark.parametrize("names", LABELS.values(), ids=LABELS)
def test_labels_of_any_type(names):
    X, y = blobs(spread=0.3)
    names = np.asarray(names)
    model = LACEClassifier(random_state=0).fit(X, names[y])
    assert model.classes_.tolist() == sorted(names.tolist())
    assert model.predict(X).dtype == names.dtype
    assert (model.predict(X) == names[y]).mean() > 0.95


def test_labels_that_are_true_or_false():
    X, y = blobs(classes=2, spread=0.3)
    model = LACEClassifier(random_state=0).fit(X, y == 1)
    assert model.predict(X).dtype == bool
    assert model.decision_function(X).shape == (len(X),)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X))


@unconverged
@pytest.mark.parametrize("model", EVERY, ids=str)
def test_tensors_are_as_good_as_arrays(model):
    X, y = blobs()
    expected = fresh(model).fit(X, y).predict_proba(X)
    x, t = torch.from_numpy(X), torch.from_numpy(y)
    found = fresh(model).fit(x.requires_grad_(), t, sample_weight=torch.ones(len(y)))
    np.testing.assert_array_equal(found.predict_proba(x), expected)
    half = fresh(model).fit(x.bfloat16(), t)
    assert half.predict_proba(x).dtype == np.float32


@unconverged
@pytest.mark.parametrize("model", EVERY, ids=str)
def test_precision_is_that_of_the_features(model):
    X, y = blobs()
    single = fresh(model).fit(X.astype(np.float32), y)
    assert single.transform(X).dtype == np.float32
    assert {p.dtype for p in single.head_.parameters()} == {torch.float32}
    assert fresh(model).fit(X, y).transform(X.astype(np.float32)).dtype == np.float64


def test_float32_fits_as_float64_does():
    X, T, y, _ = digits()
    model = LACEClassifier(shrinkage=0.1, scale=16.0)
    double = model.fit(X, y).decision_function(T)
    single = model.fit(X.astype(np.float32), y).decision_function(T)
    found, expected = (scores - scores.mean(axis=1, keepdims=True) for scores in (single, double))
    np.testing.assert_allclose(found, expected, atol=0.1)


@given(st.integers(-12, 12), st.floats(-100, 100), st.integers(0, 4), st.booleans())
@settings(max_examples=15)
def test_units_of_the_features_do_not_matter(power, shift, column, refine):
    X, y = blobs(spread=2.0)
    moved = X.copy()
    moved[:, column] = (moved[:, column] + shift) * 10.0**power
    options = {"shrinkage": 0.2, "scale": 5.0, "refine": refine}
    expected = LACEClassifier(**options).fit(X, y).decision_function(X)
    found = LACEClassifier(**options).fit(moved, y).decision_function(moved)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_warm_start_keeps_nothing_of_sums():
    X, y = blobs()
    model = LACEClassifier(warm_start=True, random_state=0).fit(X + 3, y + 1)
    expected = LACEClassifier(random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), expected)


@unconverged
def test_warm_start_of_layers():
    X, y = blobs(spread=2.0)
    model = HeadClassifier(max_iter=5, warm_start=True, early_stopping=False, random_state=0)
    losses = [log_loss(y, model.fit(X, y).predict_proba(X)) for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    model.set_params(warm_start=False).fit(X, y)
    assert log_loss(y, model.predict_proba(X)) == losses[0]


def test_early_stopping_keeps_the_best_weights(capsys, monkeypatch):
    split = []

    def hold_out(*arguments):
        split[:] = samples.hold_out(*arguments)
        return split

    monkeypatch.setattr("torchlace.estimators.head.hold_out", hold_out)
    X, y = blobs(rows=90, width=20, spread=4.0)
    model = HeadClassifier(hidden=64, verbose=True, random_state=0, learning_rate=0.02)
    model.fit(X, y)
    assert model.n_iter_ < 100
    shown = [line for line in capsys.readouterr().out.splitlines() if "validation loss" in line]
    assert len(shown) == model.n_iter_
    losses = [float(line.rsplit(" ", 1)[1]) for line in shown]
    assert np.argmin(losses) < len(losses) - 5
    held = split[1]
    logits = torch.from_numpy(model.decision_function(held.features))
    kept = torch.nn.functional.cross_entropy(logits, held.targets)
    assert kept.item() == pytest.approx(min(losses), abs=1e-4)


@pytest.mark.parametrize(
    ("model", "text"),
    [(LACEClassifier(max_iter=1), "L-BFGS"), (HeadClassifier(max_iter=2), "still falling")],
)
def test_too_few_iterations_are_told(model, text):
    X, _, y, _ = digits()
    with pytest.warns(ConvergenceWarning, match=f"{text}.*max_iter={model.max_iter}"):
        model.fit(X, y)
    assert model.n_iter_ == model.max_iter


def test_verbose_tells_what_is_tried(capsys):
    X, y = blobs()
    model = LACEClassifier(verbose=True, random_state=0).fit(X, y)
    text = capsys.readouterr().out
    assert f"shrinkage {model.shrinkage_:.4f}, scale {model.scale_:.3g}: validation loss" in text
    assert "training loss" in text


def test_probabilities_are_calibrated():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=2000)
    X = rng.standard_normal((2000, 4)) + 0.7 * y[:, None]
    model = LACEClassifier(scale=60.0, random_state=0).fit(X[:1000], y[:1000])
    found = log_loss(y[1000:], model.predict_proba(X[1000:]))
    logits = torch.from_numpy(model.decision_function(X[1000:]))
    assert found < log_loss(y[1000:], torch.sigmoid(logits).numpy()) - 0.05
    confidence = model.predict_proba(X[1000:]).max(axis=1).mean()
    assert confidence == pytest.approx(model.score(X[1000:], y[1000:]), abs=0.04)


def test_log_probabilities():
    X, y = blobs()
    model = LACEClassifier(random_state=0).fit(X, y)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
