"""The ACE statistic against explicit inverses, and against the classical detector."""

import itertools
import math

import numpy as np
import pytest
import spectral
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import mahalanobis
from torch.testing import assert_close

from torchlace.functional import ace, cholesky_whitening

N, C, D = 6, 3, 4


def problem(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    factor = normal(D, D)
    covariance = factor @ factor.T + 0.1 * torch.eye(D, dtype=torch.float64)
    return normal(N, D), normal(C, D), normal(D), covariance


def naive(features, signatures, mean, covariance, centred, squared):
    inverse = covariance.inverse()
    scores = torch.empty(len(features), len(signatures), dtype=torch.float64)
    for (n, x), (c, s) in itertools.product(enumerate(features), enumerate(signatures)):
        y, t = x - mean, s - mean if centred else s
        top = (t @ inverse @ y).item()
        score = top / math.sqrt((t @ inverse @ t).item() * (y @ inverse @ y).item())
        scores[n, c] = score**2 if squared else score
    return scores


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("with_mean", "centred"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("metric", ["precision", "whitening", "symmetric", "tall", "none"])
def test_equals_the_explicit_inverse(metric, with_mean, centred, squared):
    x, s, mean, covariance = problem()
    values, vectors = torch.linalg.eigh(covariance)
    symmetric = vectors @ torch.diag(values.rsqrt()) @ vectors.T
    options = {
        "precision": {"precision": covariance.inverse()},
        "whitening": {"whitening": cholesky_whitening(covariance)},
        "symmetric": {"whitening": symmetric},
        "tall": {"whitening": torch.cat([0.6 * symmetric, 0.8 * symmetric])},
        "none": {},
    }[metric]
    covariance = torch.eye(D, dtype=torch.float64) if metric == "none" else covariance
    found = ace(
        x, s, mean if with_mean else None, centre_signatures=centred, squared=squared, **options
    )
    mean = mean if with_mean else torch.zeros_like(mean)
    assert_close(found, naive(x, s, mean, covariance, centred, squared))


def test_equals_the_classical_detector():
    x, s, mean, covariance = problem()
    background = spectral.GaussianStats(mean=mean.numpy(), cov=covariance.numpy())
    precision = covariance.inverse()
    found = ace(x, s, mean, precision=precision, centre_signatures=True, squared=True)
    for c in range(C):
        expected = spectral.ace(x.numpy()[None], s[c].numpy(), background=background)
        np.testing.assert_allclose(found[:, c].numpy(), expected[0], rtol=1e-8)


def test_law_of_cosines_with_mahalanobis_distances():
    x, s, mean, covariance = problem()
    inverse, scores = covariance.inverse().numpy(), ace(x, s, mean, precision=covariance.inverse())
    for n, c in itertools.product(range(N), range(C)):
        y, t, zero = (x[n] - mean).numpy(), s[c].numpy(), np.zeros(D)
        a, b = mahalanobis(y, zero, inverse), mahalanobis(t, zero, inverse)
        between = mahalanobis(y, t, inverse)
        assert scores[n, c].item() == pytest.approx((a * a + b * b - between**2) / (2 * a * b))


@pytest.mark.parametrize("size", [1e-18, 1e18])
@pytest.mark.parametrize("metric", ["precision", "whitening"])
def test_features_of_any_size(size, metric):
    x, s, _, covariance = problem()
    matrix = covariance.inverse() if metric == "precision" else cholesky_whitening(covariance)
    expected = ace(x, s, precision=covariance.inverse())
    found = ace((x * size).float(), s.float(), **{metric: matrix.float()})
    assert_close(found.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"precision": torch.eye(D)}, {"whitening": torch.eye(D)}])
def test_zero_features_and_signatures_score_zero(options):
    x, s = torch.zeros(2, D, requires_grad=True), torch.zeros(3, D, requires_grad=True)
    scores = ace(x, s, **options)
    scores.sum().backward()
    assert scores.shape == (2, 3)
    assert not scores.any()
    assert x.grad.isfinite().all()
    assert s.grad.isfinite().all()


def test_precision_and_whitening_exclude_each_other():
    x, s, _, covariance = problem()
    with pytest.raises(ValueError, match="either precision or whitening"):
        ace(x, s, precision=covariance, whitening=covariance)


@pytest.mark.parametrize("metric", ["precision", "whitening"])
def test_gradients(metric):
    x, s, mean, covariance = problem()
    matrix = covariance.inverse() if metric == "precision" else cholesky_whitening(covariance)
    inputs = [value.requires_grad_() for value in (x, s, mean, matrix)]
    assert torch.autograd.gradcheck(lambda x, s, m, w: ace(x, s, m, **{metric: w}), inputs)


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_invariant_to_a_joint_linear_map(seed):
    x, s, mean, covariance = problem(seed)
    turn = torch.linalg.qr(problem(seed + 1)[3]).Q * 3
    moved = ace(
        x @ turn.T, s @ turn.T, turn @ mean, precision=(turn @ covariance @ turn.T).inverse()
    )
    found = ace(x, s, mean, precision=covariance.inverse())
    assert_close(moved, found, rtol=1e-6, atol=1e-8)
    assert found.abs().max() <= 1 + 1e-12


def test_signatures_can_be_centred_about_a_mean_only():
    features, signatures = torch.randn(4, 3), torch.randn(2, 3)
    with pytest.raises(ValueError, match=r"centre_signatures=True needs the mean.*give mean="):
        ace(features, signatures, centre_signatures=True)
