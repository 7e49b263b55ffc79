"""The published rules against their formulas, written out."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from torchlace.experiments.rules import FeCAM, KubokawaSrivastava, RanPAC

WIDTH = 6


def samples(seed, classes=4, each=15):
    rng = np.random.default_rng(seed)
    y = np.arange(classes * each) % classes
    X = rng.gamma(2.0, size=(len(y), WIDTH)) + rng.gamma(1.0, size=(classes, WIDTH))[y]
    return X, y


def in_parts(rule, X, y):
    for own in (y < 2, y >= 2):
        rule.partial_fit(X[own], y[own])
    return rule


@pytest.mark.parametrize("seed", range(3))
def test_kubokawa_srivastava_is_gaussian_with_that_inverse(seed):
    X, y = samples(seed)
    means = np.stack([X[y == c].mean(0) for c in range(4)])
    S = (X - means[y]).T @ (X - means[y]) / (len(y) - 1)
    inverse = WIDTH * np.linalg.inv((len(y) - 1) * S + np.trace(S) * np.eye(WIDTH))
    new = samples(seed + 10)[0]
    distances = [((new - m) @ inverse * (new - m)).sum(1) for m in means]
    found = in_parts(KubokawaSrivastava(), X, y).predict(new)
    assert (found == np.argmin(distances, axis=0)).all()


@pytest.mark.parametrize("seed", range(3))
def test_fecam_measures_distances_by_correlations_of_roots(seed):
    X, y = samples(seed)
    new = samples(seed + 10)[0]

    def to_length_one(v):
        return v / np.linalg.norm(v, axis=-1, keepdims=True)

    distances = []
    for label in range(4):
        own = X[y == label]
        C = np.cov(np.sqrt(own).T)
        for _ in range(2):
            off = ~np.eye(WIDTH, dtype=bool)
            C = C + np.diag(C).mean() * np.eye(WIDTH) + C[off].mean() * off
        C = C / np.sqrt(np.outer(np.diag(C), np.diag(C)))
        z = to_length_one(np.sqrt(to_length_one(new))) - to_length_one(np.sqrt(own.mean(0)))
        distances.append([v @ np.linalg.inv(C) @ v for v in z])
    found = in_parts(FeCAM(), X, y).predict(new)
    assert (found == np.argmin(distances, axis=0)).all()


@pytest.mark.parametrize("seed", range(3))
def test_ranpac_is_ridge_regression_of_random_features(seed):
    X, y = samples(seed)
    rule = in_parts(RanPAC(projections=40), X, y)
    H = np.maximum(X @ rule.random.numpy(), 0)
    targets = np.eye(4)[y]
    fits = [
        Ridge(10.0**p, fit_intercept=False, solver="cholesky").fit(H, targets) for p in range(-8, 9)
    ]
    assert any(np.allclose(fit.coef_.T, rule.weights.numpy(), rtol=1e-4, atol=1e-7) for fit in fits)
