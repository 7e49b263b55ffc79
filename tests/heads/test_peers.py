"""Equality with pytorch-metric-learning where the definitions agree."""

import math

import pytest
import torch
from heads.cases import CLASSES, WIDTH, batch
from pytorch_metric_learning import losses
from torch.nn import functional as F
from torch.testing import assert_close

import torchlace as tl

PAIRS = {
    "arcface": (
        tl.ArcFace(WIDTH, CLASSES, margin=0.5, scale=16, dtype=torch.float64),
        losses.ArcFaceLoss(CLASSES, WIDTH, margin=math.degrees(0.5), scale=16),
    ),
    "arcface past the turn": (
        tl.ArcFace(WIDTH, CLASSES, margin=1.5, scale=4, dtype=torch.float64),
        losses.ArcFaceLoss(CLASSES, WIDTH, margin=math.degrees(1.5), scale=4),
    ),
    "cosface": (
        tl.CosFace(WIDTH, CLASSES, margin=0.4, scale=30, dtype=torch.float64),
        losses.CosFaceLoss(CLASSES, WIDTH, margin=0.4, scale=30),
    ),
    "normface": (
        tl.NormFace(WIDTH, CLASSES, scale=20, dtype=torch.float64),
        losses.NormalizedSoftmaxLoss(CLASSES, WIDTH, temperature=0.05),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_loss_gradients_and_scores(name):
    head, peer = PAIRS[name]
    peer = peer.double()
    with torch.no_grad():
        peer.W.copy_(head.weight.T)
    x, y = batch(32, seed=1)
    x.requires_grad_()
    ours, theirs = head.loss(x, y), peer(x, y)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    to_x, to_weight = torch.autograd.grad(ours, [x, head.weight])
    their_x, their_weight = torch.autograd.grad(theirs, [x, peer.W])
    assert_close(to_x, their_x, rtol=1e-5, atol=1e-8)
    assert_close(to_weight, their_weight.T, rtol=1e-5, atol=1e-8)
    assert_close(head(x), peer.get_logits(x), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("margin", [2, 3, 4])
def test_sphereface_on_unit_features(margin):
    head = tl.SphereFace(WIDTH, CLASSES, margin=margin, scale=8, dtype=torch.float64)
    peer = losses.SphereFaceLoss(CLASSES, WIDTH, margin=margin, scale=8).double()
    with torch.no_grad():
        peer.W.copy_(head.weight.T)
    x, y = batch(32, seed=1)
    x = F.normalize(x)
    ours, theirs = head.loss(x, y), peer(x, y)
    assert_close(ours, theirs, rtol=1e-6, atol=1e-9)
    (to_weight,) = torch.autograd.grad(ours, [head.weight])
    (their_weight,) = torch.autograd.grad(theirs, [peer.W])
    assert_close(to_weight, their_weight.T, rtol=1e-5, atol=1e-8)
