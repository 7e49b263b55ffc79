"""Errors say what was wrong; what can be classified anyhow is, without NaN."""

import re

import numpy as np
import pytest
import torch
from estimators.data import blobs
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from torchlace.estimators import HeadClassifier, LACEClassifier

X, Y = blobs()
BOTH = [LACEClassifier, HeadClassifier]


def spoilt(value):
    bad = X.copy()
    bad[3, 1] = value
    return bad


DATA = {
    "one class": (X, np.zeros(len(X)), {}, "at least two classes, got one class only: .*0"),
    "one class that counts": (X, Y, {"sample_weight": (Y == 1) * 1.0}, "got one class only: .*1"),
    "nothing counts": (X, Y, {"sample_weight": np.zeros(len(X))}, "[Ss]ample.weight"),
    "negative weight": (X, Y, {"sample_weight": np.full(len(X), -1.0)}, "[Nn]egative.*weight"),
    "too few weights": (X, Y, {"sample_weight": np.ones(3)}, "sample_weight"),
    "NaN": (spoilt(np.nan), Y, {}, "NaN"),
    "infinity": (spoilt(np.inf), Y, {}, "infinity"),
    "labels of another length": (X, Y[:-1], {}, "inconsistent numbers of samples"),
    "continuous labels": (X, Y + 0.5 * X[:, 0], {}, "continuous"),
    "no features": (X[:, :0], Y, {}, "0 feature"),
    "one dimension": (X[0], Y, {}, "2D"),
}
LACE_SETTINGS = {
    "shrinkage word": ({"shrinkage": "lw"}, ValueError, "unknown shrinkage 'lw'.*auto"),
    "shrinkage of zero": ({"shrinkage": 0.0}, ValueError, r"shrinkage must lie in \[1e-06, 1\]"),
    "refine word": ({"refine": "yes"}, ValueError, "unknown refine 'yes'.*auto"),
    "scale word": ({"scale": "learned"}, ValueError, "unknown scale 'learned'.*auto"),
    "negative scale": ({"scale": -1.0}, ValueError, "scale must lie in"),
    "no validation": ({"validation_fraction": 0}, ValueError, "validation_fraction must lie in"),
    "no iterations": ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    "negative tol": ({"tol": -1.0}, ValueError, "tol must lie in"),
    "class weight": ({"class_weight": {0: 1, 5: 2}}, ValueError, "not in class_weight"),
    "negative class weight": (
        {"class_weight": {0: 1, 1: 2, 2: -0.5}},
        ValueError,
        "class_weight must hold finite weights, .* got -0.5 for class 2: give 0",
    ),
    "no weight": ({"class_weight": {0: 0, 1: 0, 2: 0}}, ValueError, "leaves no sample"),
    "mps": ({"device": "mps"}, ValueError, 'device="cpu"'),
    "device": ({"device": "gpu"}, ValueError, "unknown device 'gpu': use device=\"cpu\""),
}
HEAD_SETTINGS = {
    "head": ({"head": "arcfce"}, ValueError, "unknown head 'arcfce': did you mean 'arcface'"),
    "head option": ({"head_options": {"margin": 1}}, TypeError, "margin"),
    "hidden": ({"hidden": 0}, ValueError, "hidden must be at least 1"),
    "hidden type": ({"hidden": (8, 2.5)}, TypeError, "hidden must be an integer"),
    "activation": ({"hidden": 4, "activation": "relo"}, ValueError, "did you mean 'relu'"),
    "learning rate": ({"learning_rate": 0}, ValueError, "learning_rate must lie in"),
    "batch size": ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
    "device": ({"device": "gpu"}, ValueError, "unknown device 'gpu': use device=\"cpu\""),
    "divergence": ({"learning_rate": 1e30, "hidden": 4}, ValueError, "diverged"),
}


@pytest.mark.filterwarnings("ignore:.*after max_iter=2")
@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for what there is")
@pytest.mark.parametrize("kind", BOTH)
def test_a_device_that_is_not_there(kind):
    with pytest.raises(ValueError, match='no CUDA device here: use device="cpu"'):
        kind(device="cuda").fit(X, Y)
    with pytest.raises(ValueError, match='no CUDA device here: use device="cpu"'):
        kind(max_iter=2).fit(X, Y).set_params(device="cuda").predict(X)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("case", DATA.values(), ids=DATA)
def test_data(kind, case):
    features, labels, options, text = case
    with pytest.raises(ValueError, match=text):
        kind().fit(features, labels, **options)


@pytest.mark.parametrize("case", LACE_SETTINGS.values(), ids=LACE_SETTINGS)
def test_settings_of_lace(case):
    settings, kind, text = case
    with pytest.raises(kind, match=text):
        LACEClassifier(**settings).fit(X, Y)


@pytest.mark.parametrize("case", HEAD_SETTINGS.values(), ids=HEAD_SETTINGS)
def test_settings_of_heads(case):
    settings, kind, text = case
    with pytest.raises(kind, match=text):
        HeadClassifier(**settings).fit(X, Y)


@pytest.mark.parametrize("model", [LACEClassifier(hidden=4), HeadClassifier()], ids=str)
def test_streams_through_layers(model):
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        clone(model).partial_fit(X, Y)
    with pytest.raises(ValueError, match=r"none of the classes .*: \[2\]"):
        clone(model).partial_fit(X, Y, classes=[0, 1])
    with pytest.raises(ValueError, match="needs all samples at once"):
        clone(model).set_params(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])


def test_streams_of_sums():
    model = LACEClassifier().partial_fit(X[:9], np.zeros(9))
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="Mix of label input types"):
        model.partial_fit(X, np.array(["ash", "beech", "oak"])[Y])
    with pytest.raises(NotFittedError):
        model.merge(LACEClassifier())
    with pytest.raises(ValueError, match="the same features, these have 5 and 4"):
        model.merge(LACEClassifier().fit(X[:, :4], Y))
    layers = LACEClassifier(hidden=4, max_iter=2)
    for ask in (lambda: model.merge(layers), lambda: layers.forget(1)):
        with pytest.raises(ValueError, match="need the closed form: leave out hidden"):
            ask()
    model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="7 is none of the classes"):
        model.forget(7)
    with pytest.raises(ValueError, match="not the samples of 1 that were learned"):
        model.forget(1, X[Y == 1][1:])
    with pytest.raises(ValueError, match="leaves one class only: 0"):
        LACEClassifier().fit(X[Y < 2], Y[Y < 2]).forget(1)


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"hidden": 4}),
        ({"hidden": 4, "max_iter": 2}, {"hidden": None, "max_iter": 200}),
    ],
    ids=str,
)
def test_streams_that_can_not_follow_a_change(before, after):
    model = LACEClassifier(random_state=0, **before).fit(X, Y).set_params(**after)
    with pytest.raises(ValueError, match=r"goes on with what was built, and one of .* call fit"):
        model.partial_fit(X, Y)
    assert np.isfinite(model.fit(X, Y).partial_fit(X, Y).predict_proba(X)).all()


@pytest.mark.parametrize(
    "model",
    [LACEClassifier(), LACEClassifier(hidden=4), HeadClassifier("arcface")],
    ids=["lace", "hidden", "arcface"],
)
@pytest.mark.parametrize(
    ("learn", "options"), [("fit", {}), ("partial_fit", {"classes": [0, 1, 2]})]
)
def test_features_too_large_to_square(model, learn, options):
    with pytest.raises(ValueError, match="too large to be squared: rescale"):
        getattr(clone(model), learn)(1e200 * X, Y, **options)


@pytest.mark.parametrize("weight", [-1, -1e-9, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", BOTH)
def test_weights_of_classes_that_no_loss_can_have(kind, weight):
    names = np.array(["ash", "beech", "oak"])[Y]
    model = kind(class_weight={"ash": 1, "beech": weight, "oak": 1})
    with pytest.raises(ValueError, match=f"got {weight:g} for class 'beech'"):
        model.fit(X, names)
    with pytest.raises(ValueError, match=f"got {weight:g} for class 'beech'"):
        model.partial_fit(X, names, classes=["ash", "beech", "oak"])


@pytest.mark.parametrize(
    "model", [LACEClassifier(), LACEClassifier(hidden=4), HeadClassifier()], ids=str
)
@pytest.mark.parametrize("size", [np.float64(1e-170), np.float64(1e-300), np.float32(1e-38)])
def test_features_too_small_to_square(model, size):
    features = size * X.astype(size.dtype)
    peak = re.escape(f"{np.abs(features).max():g}")
    with pytest.raises(ValueError, match=f"too small .* none is larger than {peak}: rescale"):
        clone(model).fit(features, Y)
    with pytest.raises(ValueError, match="too small to be squared"):
        clone(model).partial_fit(features, Y, classes=range(3))


@pytest.mark.parametrize("size", [np.float64(1e-150), np.float32(1e-30)])
def test_features_just_large_enough(size):
    found = LACEClassifier(random_state=0).fit(size * X.astype(size.dtype), Y)
    usual = LACEClassifier(random_state=0).fit(X.astype(size.dtype), Y)
    accuracy = found.score(size * X.astype(size.dtype), Y)
    assert accuracy == pytest.approx(usual.score(X.astype(size.dtype), Y), abs=0.05)


def test_streams_may_go_on_with_small_features():
    model = LACEClassifier(random_state=0).partial_fit(X, Y, classes=range(3))
    model.partial_fit(1e-170 * X, Y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_asked_too_early_or_of_other_features():
    model = LACEClassifier()
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, Y)
    with pytest.raises(ValueError, match=r"3 features.*expecting 5"):
        model.predict(X[:, :3])


DEGENERATE = {
    "constant features": np.ones_like(X),
    "some constant": np.where(np.arange(5) < 3, X, 7.0),
    "copies of a feature": np.repeat(X[:, :1], 5, axis=1),
    "fewer samples than features": np.hstack([X, np.random.default_rng(0).random((120, 300))]),
    "huge": 1e60 * X,
    "tiny": 1e-60 * X,
    "an outlier": spoilt(1e12),
    "huge and tiny": X * 10.0 ** np.array([60, -60, 0, 30, -30]),
    "a large offset": X + 1e9,
}


@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"shrinkage": 1e-6}], ids=str)
@pytest.mark.parametrize("features", DEGENERATE.values(), ids=DEGENERATE)
def test_singular_and_extreme_features(features, options):
    model = LACEClassifier(random_state=0, **options).fit(features, Y)
    for found in (model.decision_function, model.predict_proba, model.transform):
        assert np.isfinite(found(features)).all()
    partly = LACEClassifier(random_state=0, **options).partial_fit(features, Y, classes=range(3))
    assert np.isfinite(partly.predict_proba(features)).all()


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize("kind", BOTH)
def test_a_class_of_weight_zero(kind):
    labels = np.where(np.arange(len(Y)) == 0, 0, Y + 1)
    model = kind(class_weight={0: 1, 1: 0, 2: 0, 3: 0}, random_state=0).fit(X, labels)
    assert np.isfinite(model.predict_proba(X)).all()


def test_what_never_varied_says_nothing():
    model = LACEClassifier(random_state=0).fit(np.hstack([X, np.full((len(X), 1), 0.1)]), Y)
    scores = [model.decision_function(np.hstack([X, np.full((len(X), 1), c)])) for c in (0, 99)]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("counts", [(1, 1), (1, 1, 1), (5, 1), (2, 2), (1, 30)])
def test_very_few_samples(counts):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(len(counts)), counts)
    features = rng.standard_normal((len(labels), 4)) + 5 * labels[:, None]
    model = LACEClassifier(random_state=0).fit(features, labels)
    assert model.score(features, labels) == 1
    assert np.isfinite(model.predict_proba(features)).all()
