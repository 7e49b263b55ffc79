"""The same classifiers on an accelerator."""

import pickle

import numpy as np
import pytest
import torch
from estimators.data import blobs, digits
from sklearn.base import clone

from torchlace.estimators import HeadClassifier, LACEClassifier

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICE = "cuda"


def on(device, **options):
    return LACEClassifier(random_state=0, device=device, **options)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("options", [{}, {"fit_intercept": False}, {"class_weight": "balanced"}])
def test_fits_and_predicts_as_on_the_cpu(options, dtype):
    X, held, y, _ = digits()
    X, held = X.astype(dtype), held.astype(dtype)
    found, expected = (on(device, **options).fit(X, y) for device in (DEVICE, "cpu"))
    assert found.head_.weight.device.type == DEVICE
    # The choice is downhill on a grid: the same step of it, unless two are equally good.
    assert found.shrinkage_ == pytest.approx(expected.shrinkage_, rel=1e-3)
    assert found.scale_ == pytest.approx(expected.scale_, rel=1e-3)
    np.testing.assert_allclose(found.transform(held), expected.transform(held), rtol=0, atol=2e-3)
    probabilities = found.predict_proba(held)
    assert probabilities.dtype == dtype
    # L-BFGS stops where the slope is small, not at the same point.
    np.testing.assert_allclose(probabilities, expected.predict_proba(held), atol=0.02)
    assert (found.predict(held) == expected.predict(held)).mean() > 0.99


def test_tensors_of_the_device_are_taken():
    X, y = blobs()
    model = on(DEVICE).fit(torch.from_numpy(X).to(DEVICE), torch.from_numpy(y).to(DEVICE))
    np.testing.assert_array_equal(model.predict(torch.from_numpy(X).to(DEVICE)), model.predict(X))
    assert model.score(X, y) > 0.8


def test_parts_give_the_background_of_the_cpu():
    X, y = blobs(rows=300)
    found, expected = on(DEVICE), on("cpu")
    for start in range(0, 300, 100):
        for model in (found, expected):
            model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1, 2])
    assert found.shrinkage_ == pytest.approx(expected.shrinkage_, rel=1e-6)
    np.testing.assert_allclose(found.transform(X), expected.transform(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X), atol=0.02)


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize("make", [LACEClassifier, HeadClassifier])
def test_hidden_layers_learn(make):
    X, held, y, truth = digits()
    model = make(hidden=32, random_state=0, device=DEVICE, max_iter=30)
    assert model.fit(X, y).score(held, truth) > 0.93
    assert model.partial_fit(X, y).score(held, truth) > 0.93


@pytest.mark.filterwarnings("ignore:the loss was still falling")
@pytest.mark.parametrize("hidden", [None, 16])
def test_copies(hidden):
    X, y = blobs()
    model = on(DEVICE, hidden=hidden).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    parts = [*again.head_.state_dict().values(), *again.embedding_.state_dict().values()]
    known = again.__dict__.get("known_")
    parts += [] if known is None else [*known.sums, *known.scales]
    assert {part.device.type for part in parts if torch.is_tensor(part)} == {"cpu"}
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-5)
    again.set_params(device="cpu")
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=1e-3)
    np.testing.assert_allclose(again.partial_fit(X, y).predict_proba(X).sum(axis=1), 1, rtol=1e-5)
    copy = clone(model)
    assert copy.device == DEVICE
    assert not hasattr(copy, "head_")
    assert (copy.fit(X, y).predict(X) == model.predict(X)).mean() > 0.95
