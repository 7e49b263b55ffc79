"""Shrinkage, and whitenings by Cholesky and by Newton–Schulz."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import shrunk_covariance
from torch.testing import assert_close

from torchlace.functional import cholesky_whitening, newton_schulz_whitening, shrink

D = 6


def covariance(condition, seed=0, width=D, size=1.0):
    """Eigenvalues from ``size / condition`` to ``size`` in random directions."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, -1, width, base=condition, dtype=torch.float64) * size
    return turn @ torch.diag(values) @ turn.T


def methods(condition):
    return {
        "cholesky": cholesky_whitening,
        "newton-schulz": lambda matrix: newton_schulz_whitening(matrix, condition),
    }


def error(whitening, matrix):
    product = whitening.double() @ matrix.double() @ whitening.double().mT
    return (product - torch.eye(matrix.shape[-1], dtype=torch.float64)).abs().max().item()


@pytest.mark.parametrize("method", ["cholesky", "newton-schulz"])
@pytest.mark.parametrize("condition", [1.0, 10.0, 1e4, 1e8])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_whitens_up_to_the_condition_promised(method, condition, size):
    matrix = covariance(condition, size=size)
    assert error(methods(condition)[method](matrix), matrix) < 1e-14 * max(condition, 1e4)


@pytest.mark.parametrize("method", ["cholesky", "newton-schulz"])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 6e5])
@pytest.mark.parametrize("width", [2, D, 64])
def test_accurate_in_fp32(method, condition, width):
    matrix = covariance(condition, width=width).float()
    assert error(methods(condition)[method](matrix), matrix) < 1e-6 * (10 + condition)


@pytest.mark.parametrize("method", ["cholesky", "newton-schulz"])
def test_batches_of_matrices(method):
    matrices = torch.stack([covariance(10.0**k, seed=k) for k in range(4)]).view(2, 2, D, D)
    whiten = methods(1e3)[method]
    found = whiten(matrices)
    for i in range(2):
        for j in range(2):
            assert_close(found[i, j], whiten(matrices[i, j]))


def test_cholesky_is_lower_triangular_with_a_positive_diagonal():
    found = cholesky_whitening(covariance(100.0))
    assert not found.triu(1).any()
    assert (found.diagonal() > 0).all()


@settings(max_examples=40)
@given(st.floats(0, 5), st.floats(-5, 5), st.integers(0, 10**6), st.integers(1, 8))
def test_newton_schulz_is_the_symmetric_root(exponent, size, seed, width):
    matrix = covariance(10**exponent, seed, width, 10**size)
    values, vectors = torch.linalg.eigh(matrix)
    expected = vectors @ torch.diag(values.rsqrt()) @ vectors.T
    found = newton_schulz_whitening(matrix, 10**exponent)
    assert_close(found, expected, rtol=1e-6, atol=1e-6 * expected.abs().max().item())
    assert_close(found, found.mT, rtol=1e-6, atol=1e-6 * expected.abs().max().item())


@settings(max_examples=40)
@given(st.floats(0, 1), st.integers(0, 10**6))
def test_shrink_equals_scikit_learn(amount, seed):
    matrix = covariance(100.0, seed)
    expected = torch.from_numpy(shrunk_covariance(matrix.numpy(), amount))
    assert_close(shrink(matrix, amount), expected)


def test_shrink_by_an_amount_for_each_matrix():
    matrices = torch.stack([covariance(10.0), covariance(100.0, seed=1)])
    amounts = torch.tensor([0.2, 0.9], dtype=torch.float64)
    found = shrink(matrices, amounts)
    for index in range(2):
        assert_close(found[index], shrink(matrices[index], amounts[index].item()))


def test_shrink_of_no_variance_is_the_identity():
    for amount in (0.01, 0.5, 1.0):
        assert_close(shrink(torch.zeros(2, D, D), amount), torch.eye(D).expand(2, D, D))
