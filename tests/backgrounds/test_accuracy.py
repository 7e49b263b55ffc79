"""In fp32, on data that is hard: nearly singular, far apart, of few samples."""

import pytest
import torch
from torch.testing import assert_close

import torchlace as tl
from torchlace.backgrounds import LowRankTotal, OneVsAll, OneVsOne, Total


def spiky(rows, width, noise=0.01):
    """One direction holds nearly all of the variance, as early in training."""
    return torch.randn(rows, 1) @ torch.randn(1, width) + noise * torch.randn(rows, width)


@pytest.mark.parametrize("seed", range(5))
def test_low_rank_of_fewer_samples_than_its_rank(seed):
    torch.manual_seed(seed)
    features = spiky(16, 64)
    background = LowRankTotal(64, rank=64)
    exact = LowRankTotal(64, rank=64, dtype=torch.float64)
    exact.probe.copy_(background.probe)
    whitened, expected = background(features).double(), exact(features.double())
    products = expected @ expected.T
    assert_close(whitened @ whitened.T, products, rtol=0, atol=0.2 * products.abs().max().item())


def test_a_failed_decomposition_is_not_kept():
    background = Total(3)
    with torch.no_grad():
        background.running_mass.fill_(1)
        background.running_unit.fill_(1)
        background.running_covariance.copy_(torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]]))
    background.refresh()
    assert_close(background.whitening, torch.eye(3))


@pytest.mark.parametrize("method", ["cholesky", "newton-schulz"])
@pytest.mark.parametrize(("shrinkage", "tolerance"), [(0.1, 1e-3), (0.01, 1e-2), (1e-3, 0.1)])
def test_whitening_of_few_spiky_samples(method, shrinkage, tolerance):
    torch.manual_seed(0)
    background = Total(128, shrinkage=shrinkage, method=method)
    features = spiky(32, 128)
    background(features)
    covariance = features.double().T.cov(correction=0)
    covariance = tl.functional.shrink(covariance, shrinkage)
    factor = background.whitening.double()
    product = factor @ covariance @ factor.T
    assert_close(product, torch.eye(128, dtype=torch.float64), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", [OneVsAll, OneVsOne])
@pytest.mark.parametrize("gap", [1.0, 30.0, 100.0])
def test_classes_far_apart(kind, gap):
    torch.manual_seed(0)
    targets = torch.arange(64) % 4
    features = gap * torch.randn(4, 6)[targets] + torch.randn(64, 6)
    background, exact = kind(6, 4), kind(6, 4, dtype=torch.float64)
    background.observe(features, targets)
    exact.observe(features.double(), targets)
    signatures = torch.randn(4, 6)
    scores = background.cosines(features, background.transform(signatures))
    expected = exact.cosines(features.double(), exact.transform(signatures.double()))
    assert_close(scores.double(), expected, rtol=0, atol=5e-3)
    assert scores.abs().max() <= 1 + 1e-4


def test_a_signature_without_a_length_has_no_cosine():
    torch.manual_seed(0)
    background = OneVsAll(6, 4)
    background.observe(torch.randn(64, 6), torch.arange(64) % 4)
    scores = background.cosines(
        torch.randn(8, 6), torch.eye(4, 6) * torch.tensor([[0], [1], [1], [1]])
    )
    assert (scores[:, 0] == 0).all()
    assert (scores[:, 1:] != 0).all()


@pytest.mark.parametrize("kind", [Total, LowRankTotal])
@pytest.mark.parametrize("size", [1e-18, 1e-9, 1e9, 1e18])
def test_features_of_any_size_whiten_alike(kind, size):
    torch.manual_seed(0)
    features = torch.randn(4, 32, 6) @ torch.randn(6, 6) + 3
    plain, scaled = kind(6, refresh_every=1), kind(6, refresh_every=1)
    if kind is LowRankTotal:
        scaled.probe.copy_(plain.probe)
    for batch in features:
        expected, whitened = plain(batch), scaled(batch * size)
        assert_close(whitened, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", [Total, LowRankTotal])
def test_a_large_offset_costs_little(kind):
    torch.manual_seed(0)
    features = torch.randn(4, 64, 6) @ torch.randn(6, 6)
    plain, moved = kind(6, refresh_every=1), kind(6, refresh_every=1)
    if kind is LowRankTotal:
        moved.probe.copy_(plain.probe)
    for batch in features:
        expected, whitened = plain(batch), moved(batch + 1000)
    assert_close(whitened, expected, rtol=0, atol=0.02)
