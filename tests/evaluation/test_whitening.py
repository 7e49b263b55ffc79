import numpy as np
import pytest
import torch

from torchlace.evaluation import whitening_scores


def ill_conditioned(width, seed=0):
    """A covariance with condition number 1e8, and samples of it."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(width, width)))[0]
    values = np.logspace(4, -4, width)
    samples = rng.normal(size=(4000, width)) * np.sqrt(values) @ basis.T + 3
    return basis, values, samples


def test_a_known_background():
    basis, values, samples = ill_conditioned(6)
    whitening = (basis / np.sqrt(values)).T
    whitened = (samples - samples.mean(0)) @ whitening.T
    scores = whitening_scores(torch.from_numpy(whitening.T), torch.from_numpy(whitened).float())
    assert scores["spectrum"] == pytest.approx(values, rel=1e-6)
    assert scores["condition"] == pytest.approx(1e8, rel=1e-6)
    assert scores["effective_dimension"] == pytest.approx(
        values.sum() ** 2 / (values**2).sum(), rel=1e-6
    )
    covariance = np.cov(whitened.T, bias=True)
    assert scores["white_spectrum"] == pytest.approx(np.linalg.eigvalsh(covariance)[::-1], rel=1e-5)
    assert scores["white_mean_norm"] == pytest.approx(0, abs=1e-5)
    error = np.linalg.norm(covariance - np.eye(6)) / np.sqrt(6)
    assert scores["white_covariance_error"] == pytest.approx(error, rel=1e-4)


def test_a_mean_that_is_off():
    whitened = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    whitened = whitened - whitened.mean(0) + torch.tensor([3.0, 4.0, 0.0])
    assert whitening_scores(torch.eye(3), whitened)["white_mean_norm"] == pytest.approx(5)


def test_a_whitening_into_more_dimensions():
    """Stacked parts with the right inner products are white in the d directions they fill."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(5000, 3, generator=generator, dtype=torch.float64)
    stacked = torch.cat([torch.eye(3), torch.eye(3)]).double() / 2**0.5
    scores = whitening_scores(stacked.T, points @ stacked.T)
    assert scores["spectrum"] == pytest.approx([1, 1, 1])
    assert len(scores["white_spectrum"]) == 3
    assert scores["white_covariance_error"] < 0.1
