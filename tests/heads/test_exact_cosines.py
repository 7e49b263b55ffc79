import itertools

import pytest
import torch
from heads.cases import (
    CLASSES,
    WIDTH,
    batch,
    cases_where,
    gradients,
    is_cosine,
    make,
    move,
    registered,
)

import torchlace as tl
from torchlace.backgrounds import OneVsAll
from torchlace.heads import LACE


def reaches_one(head):
    """Averages over opponents, and signatures outside the range of a whitening, don't."""
    averages = "OneVsOne" in type(getattr(head, "background", None)).__name__
    return is_cosine(head) and not averages and head.signatures.shape[1] == WIDTH


def origins_and_directions(head):
    """For every class the point that cosines are taken from, and its signature in feature space."""
    if not isinstance(head, LACE):
        return torch.zeros_like(head.signatures), head.signatures.detach()
    background, signatures = head.background, head.signatures
    identity = torch.eye(WIDTH, dtype=signatures.dtype)
    if head.signature_space == "whitened":
        signatures = signatures @ torch.linalg.inv(background.transform(identity))
    mean = background.mean if background.has_mean else torch.zeros_like(signatures)
    if isinstance(background, OneVsAll) and background.has_mean:
        offsets = background.centers @ torch.linalg.inv(background.transform(identity))
        mean = background.origin + background.pull[:, None] * offsets
    return mean.expand_as(signatures).detach(), signatures.detach()


@cases_where(reaches_one)
def test_finite_at_cosines_of_plus_and_minus_one(case):
    head = make(case, dtype=torch.float32)
    move(head, 4, dtype=torch.float32)
    head.eval()
    if head.bias is not None:
        torch.nn.init.zeros_(head.bias)
    origins, directions = origins_and_directions(head)
    y = torch.arange(CLASSES)
    for sign, targets in itertools.product((1, -1), (y, y.roll(1))):
        x = (origins + sign * directions).requires_grad_()
        cosines = head(x).diagonal() / head.scale
        torch.testing.assert_close(cosines, torch.full_like(cosines, sign), rtol=0, atol=1e-5)
        loss = head.loss(x, targets)
        assert torch.isfinite(loss)
        for name, gradient in gradients(loss, head, x).items():
            assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("name", ["arcface", "cosface", "sphereface", "normface"])
def test_finite_where_rounding_takes_cosines_past_one(name):
    head = make(registered(name), dtype=torch.float32, classes=64)
    x = head.weight.detach().clone().requires_grad_()
    assert (head(x).diagonal() / head.scale).max() > 1
    loss = head.loss(x, torch.arange(64))
    for name, gradient in gradients(loss, head, x).items():
        assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("sign", [1, -1])
def test_contrastive_pairs_that_coincide_or_oppose(sign):
    head = tl.AMC(WIDTH, CLASSES, dtype=torch.float64)
    x, y = batch(8)
    x = torch.cat([x, sign * x]).requires_grad_()
    loss = head.loss(x, torch.cat([y, y]))
    for name, gradient in gradients(loss, head, x).items():
        assert torch.isfinite(gradient).all(), name
