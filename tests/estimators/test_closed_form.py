"""What is computed, not learned, against formulas in fp64 and scikit-learn."""

import numpy as np
import pytest
import torch
from estimators.data import as_samples, blobs, digits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import torchlace as tl
from torchlace.estimators import HeadClassifier, LACEClassifier
from torchlace.estimators.closed import Rule, Spectrum
from torchlace.estimators.samples import Samples, stacked
from torchlace.estimators.scales import Scales, log_shares, sharpest
from torchlace.estimators.search import fit_signatures
from torchlace.estimators.sums import advised_odds, sums_of


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


@given(st.integers(0, 2**31), st.booleans())
@settings(max_examples=25)
def test_sums_are_those_of_numpy(seed, weighted):
    X, y = blobs(seed, rows=60)
    X += 1e3
    rng = np.random.default_rng(seed)
    counts = rng.uniform(0.1, 3, 60) if weighted else np.ones(60)
    found, (covariance, _) = sums_of(as_samples(X, y, counts), 3), within(X, y, counts)
    np.testing.assert_allclose(found.mean, np.average(X, axis=0, weights=counts), rtol=1e-12)
    np.testing.assert_allclose(found.scatter / found.spread, covariance, rtol=1e-8, atol=1e-9)
    total = np.average((X - np.average(X, axis=0, weights=counts)) ** 2, axis=0, weights=counts)
    np.testing.assert_allclose(found.units, total**-0.5, rtol=1e-8)
    assert found.size == pytest.approx(counts.sum() ** 2 / (counts**2).sum())


@pytest.mark.parametrize("width", [5, 70])
def test_the_ridge_is_that_of_generalised_cross_validation(width):
    X, y = blobs(rows=60, width=width, spread=2.0)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    indicators = np.eye(3)[y] - np.eye(3)[y].mean(axis=0)
    covariance, _ = within(Z, y, np.ones(60))
    level = np.trace(covariance) / width

    def score(odds):
        ridged = Z.T @ Z + 60 * odds * level * np.eye(width)
        smoother = Z @ np.linalg.solve(ridged, Z.T) + 1 / 60  # with the mean
        residual = indicators - smoother @ indicators
        left = 60 - 1.4 * np.trace(smoother)
        return (residual**2).sum() / left**2 if left > 0 else np.inf

    found = advised_odds(sums_of(as_samples(X, y), 3))
    odds = 2.0 ** np.arange(-24, 12)
    assert found == min(odds, key=score)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("shrinkage", [1e-6, 0.3])
def test_a_sample_left_out_is_scored_as_if_it_had_not_been_there(shrinkage, intercept):
    X, y = blobs(rows=40)
    samples = as_samples(X, y)
    every = sums_of(samples, 3)
    rule = Rule(Spectrum(every), shrinkage, intercept)
    found = rule.left_out(samples)
    ridge = shrinkage * every.within.diagonal().mean()
    for index in range(0, 40, 7):
        rest = sums_of(samples.take(torch.arange(40) != index), 3)
        # Units, mean and ridge stay, the class mean and the scatter don't.
        centres, x = ((part - every.mean) * every.units for part in (rest.means, samples.features))
        covariance = rest.scatter / every.spread * every.units[:, None] * every.units
        whitening = torch.linalg.cholesky(
            torch.linalg.inv((1 - shrinkage) * covariance + ridge * torch.eye(5).double())
        ).mT
        z, w = whitening @ x[index], centres @ whitening.mT
        square = rule.square if intercept else 0.0
        expected = (w @ z + square) / ((w.square().sum(1) + square) * (z @ z + square)).sqrt()
        torch.testing.assert_close(found[index], expected, rtol=1e-8, atol=1e-8)


def test_leaving_out_is_what_new_samples_will_be_like():
    X, T, y, t = digits()
    model = LACEClassifier(refine=False).fit(X, y)
    samples = as_samples(X, y)
    cosines = Rule(Spectrum(sums_of(samples, 10)), None, True).left_out(samples)
    logits = model.scale_ * cosines + model.head_.bias.detach()
    told = torch.nn.functional.cross_entropy(logits, samples.targets).item()
    assert told == pytest.approx(log_loss(t, model.predict_proba(T)), rel=0.15)
    seen = log_loss(y, model.predict_proba(X))
    assert told > 1.2 * seen


@pytest.mark.parametrize("shrinkage", [1e-6, 0.3, 1.0])
def test_whitening_inverts_the_shrunk_covariance(shrinkage):
    X, y = blobs(rows=60)
    W = Spectrum(sums_of(as_samples(X, y), 3)).whitening(shrinkage).numpy()
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


@pytest.mark.parametrize("refine", [False, True])
def test_scores_with_an_intercept_are_cosines_of_one_more_coordinate(refine):
    X, y = blobs()
    model = LACEClassifier(refine=refine, random_state=0).fit(X, y)
    constant = model.head_.background.whitening[-1, -1].item()
    whitened = np.hstack([model.transform(X), np.full((len(X), 1), constant)])
    signatures = model.head_.weight.detach().numpy()
    cosines = whitened @ signatures.T / np.linalg.norm(whitened, axis=1, keepdims=True)
    cosines /= np.linalg.norm(signatures, axis=1)
    expected = model.scale_ * cosines + model.head_.bias.detach().numpy()
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-10)


def test_signatures_are_whitened_class_means():
    X, y = blobs()
    model = LACEClassifier(refine=False).fit(X, y)
    whitened = model.transform(X)
    means = np.stack([whitened[y == label].mean(axis=0) for label in range(3)])
    usual = (whitened**2).sum(axis=1).mean() ** 0.5
    expected = np.hstack([means, np.full((3, 1), usual)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(model.head_.weight.detach(), expected, rtol=1e-9)


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
    start = torch.stack([u[y == label].mean(0) for label in range(3)])
    found = fit_signatures(
        u[None], stacked([samples]), start[None], 8.0, torch.zeros(3), max_iter=500, tol=1e-9
    )
    assert found.converged
    head = tl.NormFace(5, 3, scale=8.0, dtype=torch.float64)
    head.weight.data.copy_(found.signatures[0])
    head.loss(u, y).backward()
    assert head.weight.grad.abs().max() < 1e-6
    head.weight.data.copy_(start)
    assert head.loss(u, y) > torch.nn.functional.cross_entropy(8 * u @ found.signatures[0].T, y)


def test_sets_that_are_fitted_together_are_fitted_as_alone():
    sets, starts = [], []
    for seed, rows in ((0, 90), (1, 60), (2, 75)):
        X, y = blobs(seed, rows=rows, spread=3.0)
        samples = as_samples(X / np.linalg.norm(X, axis=1, keepdims=True), y)
        sets.append(samples)
        starts.append(torch.eye(3, 5).double())
    bias, options = torch.tensor([0.0, 0.5, -0.5]), {"max_iter": 500, "tol": 1e-9}
    every = stacked(sets)
    found = fit_signatures(every.features, every, torch.stack(starts), 8.0, bias, **options)
    for samples, start, signatures in zip(sets, starts, found.signatures, strict=True):
        one = stacked([samples])
        alone = fit_signatures(one.features, one, start[None], 8.0, bias, **options)
        torch.testing.assert_close(signatures, alone.signatures[0], atol=1e-5, rtol=0)


def labelled(targets, counts):
    return Samples(targets, targets, counts, counts)


@given(st.integers(0, 2**31), st.floats(0.1, 30.0))
@settings(max_examples=25)
def test_the_likeliest_scale_is_where_the_loss_is_lowest(seed, steep):
    rng = np.random.default_rng(seed)
    scores, counts = torch.from_numpy(rng.uniform(-1, 1, (200, 4))), torch.ones(200).double()
    # The largest of logits and Gumbel noise is a draw from their softmax.
    targets = (steep * scores + torch.from_numpy(rng.gumbel(size=(200, 4)))).argmax(1)
    bias, weights = log_shares(torch.tensor([1.0, 2, 3, 4])).double(), torch.arange(1, 5).double()
    own = weights[targets]

    def loss(power, bias=bias):
        logits = np.exp(power) * scores + bias
        losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return ((losses @ own) / own.sum() + 4 * (power - np.log(5)) ** 2 / 400).item()

    found = Scales.of(scores, labelled(targets, counts), bias).likeliest(weights, 5.0, 200)
    best = minimize_scalar(loss, bounds=(-4, 6), method="bounded")
    assert np.log(found) == pytest.approx(best.x, abs=0.05)
    weighed = Samples(targets, targets, counts, own.double())
    logits = (scores + bias / 5).mT
    direct = minimize_scalar(
        lambda power: loss(power, np.exp(power) * bias / 5), bounds=(-4, 6), method="bounded"
    )
    assert np.log(sharpest(logits, weighed, 5.0)) == pytest.approx(direct.x, abs=0.02)


def test_weights_of_a_scale_are_repetitions():
    torch.manual_seed(0)
    scores, targets = torch.randn(50, 4).double(), torch.randint(4, (50,))
    counts = torch.randint(1, 4, (50,))
    many = scores.repeat_interleave(counts, 0), targets.repeat_interleave(counts)
    once = Scales.of(many[0], labelled(many[1], torch.ones(len(many[1]))), torch.zeros(4))
    found = Scales.of(scores, labelled(targets, counts), torch.zeros(4))
    for one, other in zip(found, once, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("logits", [[[3.0, 0.0]] * 4, [[0.0, 0.0]] * 4])
def test_a_scale_of_scores_that_say_too_much_or_nothing(logits):
    right = labelled(torch.zeros(4).long(), torch.ones(4))
    scales = Scales.of(torch.tensor(logits), right, torch.zeros(2))
    found = scales.likeliest(torch.ones(2).double(), 1.0, 4)
    assert 1 <= found < 10


def test_softmax_without_decay_reaches_logistic_regression():
    X, y = blobs(rows=200, spread=2.0)
    options = {"early_stopping": False, "alpha": 0.0, "tol": 0.0, "max_iter": 300}
    model = HeadClassifier(learning_rate=0.05, batch_size=200, n_iter_no_change=300, **options)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    reference = LogisticRegression(C=np.inf, max_iter=1000).fit(Z, y)
    with pytest.warns(match="still falling"):
        model.fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=0.02)


@pytest.mark.parametrize(("rows", "width"), [(3000, 5), (60, 20)])
def test_the_scale_of_gaussian_classes(rows, width):
    found = []
    for seed in range(5):
        X, y = blobs(seed, rows=rows + 3000, width=width, classes=3, spread=2.0)
        rule = Rule(Spectrum(sums_of(as_samples(X[:rows], y[:rows]), 3)), None, True)
        new = as_samples(X[rows:], y[rows:])
        cosines = rule.vectors(rule.spectrum.axes(new.features)) @ rule.signatures().mT
        scales = Scales.of(cosines, new, torch.zeros(3))
        best = scales.likeliest(torch.ones(3).double(), 1.0, 1e9)
        found.append(rule.gaussian_scale() / best)
    assert 0.5 < np.median(found) < 2


def test_the_scale_of_one_sample_a_class_is_that_of_the_heads():
    X, y = blobs(rows=3)
    assert LACEClassifier().fit(X, y).scale_ == tl.functional.auto_scale(3)
