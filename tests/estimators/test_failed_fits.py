"""A fit that fails leaves a classifier as it was."""

import copy

import numpy as np
import pytest
import torch
from estimators.data import blobs
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from torchlace.estimators import HeadClassifier, LACEClassifier
from torchlace.estimators.closed import Rule
from torchlace.estimators.head import Trainer

X, Y = blobs()
OTHER, _ = blobs(seed=1, width=4)
MODELS = {
    "lace": LACEClassifier(random_state=0),
    "lace, warm": LACEClassifier(random_state=0, warm_start=True),
    "hidden": LACEClassifier(random_state=0, hidden=4, max_iter=3),
    "hidden, warm": LACEClassifier(random_state=0, hidden=4, max_iter=3, warm_start=True),
    "softmax": HeadClassifier(random_state=0, max_iter=3),
    "softmax, warm": HeadClassifier(random_state=0, max_iter=3, warm_start=True),
}
FAULTS = {
    "NaN": lambda x: (np.where(np.arange(x.shape[1]) == 1, np.nan, x), Y),
    "one class": lambda x: (x, np.zeros(len(x))),
    "other labels": lambda x: (x, [["a", "b"][i % 2] for i in range(len(x) - 1)]),
    "continuous": lambda x: (x, Y + 0.5),
}

pytestmark = pytest.mark.filterwarnings("ignore:.*after max_iter=3")


def outcome(model):
    return model.predict_proba(X), model.transform(X)


def interrupted(monkeypatch):
    """From now on training stops halfway: in an epoch, or when the sums have changed."""

    def stop(self, samples):
        self.parts.train()
        for parameter in self.parts.parameters():
            parameter.data.add_(1)
        raise KeyboardInterrupt

    def give_up(self, samples):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "epoch", stop)
    monkeypatch.setattr(Rule, "left_out", give_up)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("name", MODELS)
def test_after_bad_samples_the_old_fit_stays(name, fault):
    model = copy.deepcopy(MODELS[name]).fit(X, Y)
    before, names = outcome(model), set(vars(model))
    with pytest.raises(ValueError):
        model.fit(*fault(OTHER))
    assert set(vars(model)) == names
    assert model.n_features_in_ == 5
    np.testing.assert_array_equal(model.classes_, [0, 1, 2])
    for found, expected in zip(outcome(model), before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", MODELS)
def test_after_an_interrupted_fit_the_old_one_stays(name, monkeypatch):
    model = copy.deepcopy(MODELS[name]).fit(X, Y)
    before = outcome(model)
    interrupted(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X + 3, Y)
    for found, expected in zip(outcome(model), before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["lace", "hidden", "softmax"])
def test_after_an_interrupted_part_the_parts_before_stay(name, monkeypatch):
    model = copy.deepcopy(MODELS[name]).partial_fit(X[:60], Y[:60], classes=[0, 1, 2])
    before, twin = outcome(model), copy.deepcopy(model)
    with monkeypatch.context() as patch:
        interrupted(patch)
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(X[60:] + 3, Y[60:])
    for found, expected in zip(outcome(model), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    # And what comes next goes on from there, moments of the optimiser included.
    for each in (model, twin):
        each.partial_fit(X[60:], Y[60:])
    for found, expected in zip(outcome(model), outcome(twin), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_part_does_not_reach_into_copies_of_the_model():
    model = HeadClassifier(random_state=0).partial_fit(X[:60], Y[:60], classes=[0, 1, 2])
    weights = torch.nn.utils.parameters_to_vector(model.head_.parameters()).detach().clone()
    head = model.head_
    model.partial_fit(X[60:], Y[60:])
    assert torch.equal(torch.nn.utils.parameters_to_vector(head.parameters()), weights)


@pytest.mark.parametrize("kind", [LACEClassifier, HeadClassifier])
def test_a_first_fit_that_fails_leaves_nothing(kind):
    model = kind()
    for learn in (model.fit, lambda x, y: model.partial_fit(x, y, classes=[0, 1])):
        with pytest.raises(ValueError):
            learn(X, Y + 0.5)
        assert vars(model) == vars(kind())
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
    assert kind().partial_fit(OTHER, Y[: len(OTHER)], classes=[0, 1, 2]).n_features_in_ == 4


def test_what_an_older_fit_left_goes():
    model = LACEClassifier(random_state=0, max_iter=3).fit(X, Y)
    assert hasattr(model, "shrinkage_")
    assert not hasattr(model.set_params(hidden=4).fit(X, Y), "shrinkage_")


MASK = np.arange(X.size).reshape(X.shape) == 7


@pytest.mark.parametrize("kind", [LACEClassifier, HeadClassifier])
def test_masks_are_not_dropped(kind):
    masked, labels = np.ma.array(X, mask=MASK), np.ma.array(Y, mask=MASK.any(1))
    weights = np.ma.array(np.ones(len(Y)), mask=MASK.any(1))
    model = kind(random_state=0, max_iter=3).fit(np.ma.array(X), np.ma.array(Y))
    for fit in (
        lambda: model.fit(masked, Y),
        lambda: model.fit(X, labels),
        lambda: model.fit(X, Y, sample_weight=weights),
        lambda: model.partial_fit(masked, Y),
        lambda: model.predict(masked),
    ):
        with pytest.raises(ValueError, match=r"masked.*leave these samples out"):
            fit()
