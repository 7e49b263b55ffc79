"""What is computed, not learned, against formulas in fp64 and scikit-learn."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from estimators.data import as_samples, blobs, digits
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.linear_model import LogisticRegression

import torchlace as tl
from torchlace.estimators import HeadClassifier, LACEClassifier
from torchlace.estimators.samples import Samples, Spectrum, empty_moments
from torchlace.estimators.search import calibrate, class_directions, fit_signatures


def moments_of(*parts, classes=3):
    found = empty_moments(classes, parts[0].features)
    for part in parts:
        found = found.merge(part)
    return found


def within(X, y, counts):
    """The pooled covariance within classes, about weighted class means."""
    centred = np.empty_like(X)
    for label in np.unique(y):
        own = y == label
        centred[own] = X[own] - np.average(X[own], axis=0, weights=counts[own])
    return (counts[:, None] * centred).T @ centred / counts.sum(), centred


def reference_ace(X, y, signatures, shrinkage):
    """Eq. 3 with the shrunk covariance written out: the precision, no whitening."""
    covariance, _ = within(X, y, np.ones(len(y)))
    deviation = X.std(axis=0)
    deviation[deviation == 0] = np.inf
    correlation = covariance / np.outer(deviation, deviation)
    level = np.trace(correlation) / len(correlation)
    shrunk = (1 - shrinkage) * correlation + shrinkage * level * np.eye(len(correlation))
    precision = np.linalg.inv(shrunk) / np.outer(deviation, deviation)
    centred = X - X.mean(axis=0)
    lengths = np.sqrt(np.einsum("nd,de,ne->n", centred, precision, centred))
    sizes = np.sqrt(np.einsum("cd,de,ce->c", signatures, precision, signatures))
    return centred @ precision @ signatures.T / np.outer(lengths, sizes)


def in_features(model):
    """Signatures in the space of the features: s with Ws the whitened one."""
    whitening = model.head_.background.whitening.double().numpy()
    return np.linalg.lstsq(whitening, model.head_.weight.detach().numpy().T, rcond=None)[0].T


@given(st.integers(0, 2**31), st.lists(st.integers(1, 59), max_size=3, unique=True), st.booleans())
@settings(max_examples=25)
def test_moments_of_parts_are_those_of_all(seed, cuts, weighted):
    X, y = blobs(seed, rows=60)
    X += 1e3
    rng = np.random.default_rng(seed)
    counts = rng.uniform(0.1, 3, 60) if weighted else np.ones(60)
    edges = [0, *sorted(cuts), 60]
    parts = [as_samples(X[a:b], y[a:b], counts[a:b]) for a, b in pairwise(edges)]
    found, (covariance, _) = moments_of(*parts), within(X, y, counts)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=counts), rtol=1e-12)
    np.testing.assert_allclose(found.scatter / found.mass.sum(), covariance, rtol=1e-8, atol=1e-9)
    total = np.average((X - np.average(X, axis=0, weights=counts)) ** 2, axis=0, weights=counts)
    np.testing.assert_allclose(found.units, total**-0.5, rtol=1e-8)


def test_shrinkage_is_that_of_ledoit_and_wolf():
    X, y = blobs(rows=40, width=8)
    _, centred = within(X, y, np.ones(40))
    expected = ledoit_wolf_shrinkage(centred / X.std(axis=0), assume_centered=True)
    assert 0 < expected < 1
    assert moments_of(as_samples(X, y)).shrinkage == pytest.approx(expected, rel=1e-10)


def test_weights_make_neither_more_nor_fewer_samples():
    X, y = blobs(rows=40, width=8)
    light = moments_of(as_samples(X, y, np.full(40, 1e-3))).shrinkage
    assert light == pytest.approx(moments_of(as_samples(X, y)).shrinkage, rel=1e-10)


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3, 1.0])
def test_whitening_inverts_the_shrunk_covariance(shrinkage):
    X, y = blobs(rows=60)
    moments = moments_of(as_samples(X, y))
    W = Spectrum(moments).whitening(shrinkage).numpy()
    covariance, _ = within(X, y, np.ones(60))
    variance = np.diag(X.std(axis=0) ** 2)
    level = np.trace(covariance / np.outer(X.std(axis=0), X.std(axis=0))) / X.shape[1]
    shrunk = (1 - shrinkage) * covariance + shrinkage * level * variance
    np.testing.assert_allclose(W @ shrunk @ W.T, np.eye(5), atol=1e-8)


@pytest.mark.parametrize("shrinkage", [0.01, 0.5])
def test_scores_are_those_of_ace(shrinkage):
    X, _, y, _ = digits()
    model = LACEClassifier(shrinkage=shrinkage, scale=7.0, fit_intercept=False).fit(X, y)
    expected = 7.0 * reference_ace(X, y, in_features(model), shrinkage)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-8)


def test_scores_with_an_intercept_are_cosines_of_one_more_coordinate():
    X, y = blobs()
    model = LACEClassifier(random_state=0).fit(X, y)
    whitened = np.hstack([model.transform(X), np.full((len(X), 1), X.shape[1] ** 0.5)])
    signatures = model.head_.weight.detach().numpy()
    cosines = whitened @ signatures.T / np.linalg.norm(whitened, axis=1, keepdims=True)
    cosines /= np.linalg.norm(signatures, axis=1)
    np.testing.assert_allclose(model.decision_function(X), model.scale_ * cosines, atol=1e-10)


def test_transform_whitens_what_varies_within_classes():
    X, y = blobs()
    X = np.hstack([X, np.full((len(X), 1), 0.1)])
    model = LACEClassifier(shrinkage=1e-6).fit(X, y)
    covariance, _ = within(model.transform(X), y, np.ones(len(y)))
    np.testing.assert_allclose(covariance, np.diag([1.0] * 5 + [0.0]), atol=1e-3)


def test_folded_head_scores_the_same():
    X, y = blobs()
    model = LACEClassifier(random_state=0).fit(X, y)
    x = model.embedding_(torch.from_numpy(X))
    np.testing.assert_allclose(model.head_.fold()(x).detach(), model.decision_function(X))
    probabilities = model.head_.fold().probabilities(x).detach()
    np.testing.assert_allclose(probabilities, model.predict_proba(X))


def test_signatures_are_where_the_slope_vanishes():
    X, y = blobs(rows=300, spread=3.0)
    u = torch.nn.functional.normalize(torch.from_numpy(X), dim=1)
    y, w = torch.from_numpy(y), torch.ones(300, dtype=torch.float64)
    samples = Samples(u, y, w, w)
    start = class_directions(u, samples, 3)
    found = fit_signatures(u, samples, start, 8.0, max_iter=500, tol=1e-9)
    assert found.converged
    head = tl.NormFace(5, 3, scale=8.0, dtype=torch.float64)
    head.weight.data.copy_(found.signatures)
    head.loss(u, y).backward()
    assert head.weight.grad.abs().max() < 1e-6
    head.weight.data.copy_(start)
    assert head.loss(u, y) > torch.nn.functional.cross_entropy(8 * u @ found.signatures.T, y)


def labelled(targets, weights, counts=None):
    return Samples(targets, targets, weights if counts is None else counts, weights)


def test_temperature_is_that_of_the_heads():
    torch.manual_seed(0)
    logits, targets = 5 * torch.randn(200, 4, dtype=torch.float64), torch.randint(4, (200,))
    expected = tl.heads.fit_temperature(logits, targets)
    found = calibrate(logits, labelled(targets, torch.ones(200)))
    assert found.temperature == pytest.approx(expected.item(), rel=1e-6)


def test_weights_of_a_temperature_are_repetitions():
    torch.manual_seed(0)
    logits, targets = torch.randn(50, 4, dtype=torch.float64), torch.randint(4, (50,))
    counts = torch.randint(1, 4, (50,))
    repeated = logits.repeat_interleave(counts, 0), targets.repeat_interleave(counts)
    same_size = (torch.arange(counts.sum()) < 50).double()
    once = calibrate(repeated[0], labelled(repeated[1], torch.ones_like(same_size), same_size))
    found = calibrate(logits, labelled(targets, counts, torch.ones(50)))
    np.testing.assert_allclose(found, once, rtol=1e-9)


@pytest.mark.parametrize(("logits", "expected"), [([[3.0, 0.0]] * 4, 1e4), ([[0.0, 0.0]] * 4, 1.0)])
def test_a_temperature_of_useless_logits(logits, expected):
    found = calibrate(torch.tensor(logits), labelled(torch.ones(4).long(), torch.ones(4)))
    assert found.temperature == pytest.approx(expected)
    assert np.isfinite(found.loss)


def test_softmax_without_decay_reaches_logistic_regression():
    X, y = blobs(rows=200, spread=2.0)
    options = {"early_stopping": False, "alpha": 0.0, "tol": 0.0, "max_iter": 300}
    model = HeadClassifier(learning_rate=0.05, batch_size=200, n_iter_no_change=300, **options)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    reference = LogisticRegression(C=np.inf, max_iter=1000).fit(Z, y)
    with pytest.warns(match="still falling"):
        model.fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=0.02)
