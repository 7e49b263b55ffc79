"""Per-class and low-rank backgrounds fit where d × d for every class would not."""

import pytest
import torch

import torchlace as tl

MEGABYTE = 2**20


def stored_bytes(module):
    return sum(v.numel() * v.element_size() for v in module.state_dict().values())


@pytest.mark.parametrize("name", ["one-vs-all", "one-vs-all-learned"])
def test_hundred_classes_of_512_features(name):
    torch.manual_seed(0)
    background = tl.backgrounds.create(name, 512, 100)
    features = torch.randn(32, 512, requires_grad=True)
    signatures = torch.randn(100, 512, requires_grad=True)
    background.observe(features, torch.arange(32))
    scores = background.cosines(features, background.transform(signatures))
    scores.square().sum().backward()
    assert scores.shape == (32, 100)
    assert scores.abs().max() <= 1 + 1e-5
    for leaf in (features, signatures, *background.parameters()):
        assert leaf.grad.isfinite().all()
        assert leaf.grad.any()
    assert stored_bytes(background) < 32 * MEGABYTE


@pytest.mark.parametrize("name", ["low-rank", "low-rank-total", "low-rank-learned"])
def test_low_rank_never_stores_a_square(name):
    background = tl.backgrounds.create(name, 2048, 10)
    features = torch.randn(32, 2048, requires_grad=True)
    background(features, torch.arange(32) % 10).square().sum().backward()
    assert features.grad.isfinite().all()
    # A sketch of 64 columns and the variances.
    assert max(value.numel() for value in background.state_dict().values()) <= 65 * 2048
