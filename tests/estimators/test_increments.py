"""Parts, merged halves and forgotten classes leave what all samples at once would have left."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from estimators.data import blobs, digits
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlace.estimators import LACEClassifier

CLOSED = {"refine": False, "random_state": 0}


def parts_of(model):
    """What is exact: mean, precision, signatures, shrinkage."""
    head = model.head_
    parts = head.background.mean, head.background.precision, head.weight.detach()
    return [*(part.double().numpy() for part in parts), model.shrinkage_]


def assert_same(found, expected, rtol=1e-10):
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    for one, other in zip(parts_of(found), parts_of(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


@given(
    seed=st.integers(0, 2**31),
    cuts=st.lists(st.integers(1, 89), max_size=5, unique=True),
    by_class=st.booleans(),
    weighted=st.booleans(),
    single=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_parts_in_any_order_are_the_whole(seed, cuts, by_class, weighted, single):
    X, y = blobs(seed, rows=90, width=6, classes=4)
    X = (X + 10).astype(np.float32 if single else np.float64)
    rng = np.random.default_rng(seed)
    counts = rng.uniform(0.5, 3, 90) if weighted else np.ones(90)
    whole = LACEClassifier(**CLOSED).fit(X, y, sample_weight=counts)
    order = np.argsort(y, kind="stable") if by_class else rng.permutation(90)
    model = LACEClassifier(**CLOSED)
    for start, end in pairwise([0, *sorted(cuts), 90]):
        rows = order[start:end]
        model.partial_fit(X[rows], y[rows], sample_weight=counts[rows])
    sums, expected = model.known_.sums, whole.known_.sums
    for one, other in zip(sums, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-10 * other.abs().max())
    # The head has the precision of the features.
    assert_same(model, whole, 1e-5 if single else 1e-10)


def test_the_same_on_digits_after_a_refined_fit():
    X, T, y, _ = digits()
    model = LACEClassifier(random_state=0).fit(X[:600], y[:600])
    assert model.refined_
    model.partial_fit(X[600:], y[600:])
    whole = LACEClassifier(**CLOSED).fit(X, y)
    assert not model.refined_
    assert_same(model, whole)
    # Of the scale the parts know by what came before them.
    assert model.scale_ == pytest.approx(whole.scale_, rel=0.1)
    np.testing.assert_allclose(model.predict_proba(T), whole.predict_proba(T), atol=0.03)


def test_new_classes_come_one_by_one():
    X, T, y, t = digits()
    model = LACEClassifier(random_state=0)
    for label in [7, 2, 9, 0, 1, 3, 8, 4, 6, 5]:
        model.partial_fit(X[y == label], y[y == label])
    whole = LACEClassifier(**CLOSED).fit(X, y)
    assert_same(model, whole)
    assert (model.predict(T) == whole.predict(T)).all()
    assert model.score(T, t) > 0.95


def test_words_may_get_longer():
    X, y = blobs(spread=0.3)
    names = np.array(["ash", "beech", "sycamore"])[y]
    model = LACEClassifier().partial_fit(X[y < 1], names[y < 1])
    model.partial_fit(X[y > 0], names[y > 0])
    assert model.classes_.tolist() == ["ash", "beech", "sycamore"]
    assert model.score(X, names) > 0.95


def test_classes_named_before_they_come_are_never_predicted():
    X, y = blobs(spread=0.3)
    model = LACEClassifier().partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2, 3])
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (120, 4)
    assert probabilities[:, 2:].max() < 1e-6
    assert_same(
        model.partial_fit(X[y == 2], y[y == 2]).forget(3), LACEClassifier(**CLOSED).fit(X, y)
    )


@pytest.mark.parametrize("weights", [None, {0: 1.0, 1: 5.0, 2: 1.0}, "balanced"], ids=str)
def test_class_weights_are_those_of_all(weights):
    X, y = blobs(spread=2.0)
    y = np.where(y == 2, np.arange(120) % 2, y)
    y[:10] = 2
    whole = LACEClassifier(class_weight=weights, **CLOSED).fit(X, y)
    model = LACEClassifier(class_weight=weights, **CLOSED)
    for rows in (y == 2, y == 1, y == 0):
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    assert_same(model, whole)
    found, expected = (m.head_.bias.detach() / m.head_.temperature for m in (model, whole))
    torch.testing.assert_close(found, expected)


@given(st.integers(0, 2**31), st.sets(st.integers(0, 3), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_merged_halves_are_the_whole(seed, first):
    X, y = blobs(seed, rows=90, width=6, classes=4)
    # Classes of the first alone, of the second alone, and of both.
    mine = np.isin(y, list(first)) & (np.arange(90) < 70)
    here, there = (LACEClassifier().partial_fit(X[rows], y[rows]) for rows in (mine, ~mine))
    before = there.known_
    assert_same(here.merge(there), LACEClassifier(**CLOSED).fit(X, y))
    assert there.known_ is before


@given(st.integers(0, 2**31), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_a_class_whose_samples_come_back_was_never_there(seed, label):
    X, y = blobs(seed, rows=90, width=6, classes=4)
    counts = np.random.default_rng(seed).integers(1, 4, 90)
    own = y == label
    model = LACEClassifier(**CLOSED).fit(X, y, sample_weight=counts)
    model.forget(label, X[own], sample_weight=counts[own])
    expected = LACEClassifier(**CLOSED).fit(X[~own], y[~own], sample_weight=counts[~own])
    # What is taken away again leaves its rounding.
    assert_same(model, expected, 1e-8)


def test_a_forgotten_class_leaves_its_share_of_the_covariance():
    X, y = blobs()
    model = LACEClassifier(**CLOSED).fit(X, y)
    scatter = model.known_.sums.scatter
    model.forget(1)
    assert model.classes_.tolist() == [0, 2]
    assert torch.equal(model.known_.sums.scatter, scatter)
    np.testing.assert_allclose(model.known_.sums.mean, X[y != 1].mean(axis=0))
    assert set(model.predict(X)) == {0, 2}


def test_the_state_does_not_grow():
    X, y = blobs(rows=600)
    sizes = []
    for rows in (60, 600):
        model = LACEClassifier(**CLOSED).fit(X[:rows], y[:rows])
        sizes.append(sum(part.numel() for part in (*model.known_.sums, *model.known_.scales)))
    assert sizes[0] == sizes[1]
