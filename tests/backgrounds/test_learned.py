"""Backgrounds that gradients teach: how they start, and that gradients reach all of them."""

import pytest
import torch
from backgrounds.cases import CLASSES, LEARNED, WIDTH, batches, each
from torch.func import functional_call
from torch.testing import assert_close

import torchlace as tl


def outputs(background, features, signatures):
    if isinstance(background, tl.backgrounds.ClasswiseBackground):
        return background.cosines(features, signatures)
    return background(features)


@each([case for case in LEARNED if case.options.get("form") != "matrix"])
def test_starts_at_the_identity(case):
    background = case.build()
    assert not background.mean.any()
    tolerance = 0.05 if hasattr(background, "rank") else 0
    identity = torch.eye(WIDTH).expand_as(background.precision)
    assert_close(background.precision, identity, rtol=0, atol=tolerance)


def test_published_start_is_random_normal():
    torch.manual_seed(0)
    background = tl.backgrounds.Learned(200, form="matrix")
    bound = 200**-0.5
    assert background.mean.abs().max() <= bound
    assert background.mean.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
    assert background.matrix.mean().item() == pytest.approx(0, abs=0.02)
    assert background.matrix.std().item() == pytest.approx(1, rel=0.02)
    assert_close(background.matrix.double() @ background.matrix.double().T, covariance(background))


def covariance(background):
    return background.double().covariance.detach()


@each(LEARNED)
def test_gradients_reach_every_parameter(case):
    background = case.build()
    features, _ = batches(1, dtype=torch.float32)[0]
    generator = torch.Generator().manual_seed(1)
    signatures = torch.randn(CLASSES, WIDTH, generator=generator)
    out = outputs(background, features, signatures)
    (out * torch.randn(out.shape, generator=generator)).sum().backward()
    for name, parameter in background.named_parameters():
        assert parameter.grad.isfinite().all(), name
        # The upper triangle of a Cholesky factor is not part of it.
        lower = name == "matrix" and case.options.get("form") == "cholesky"
        grad = parameter.grad[torch.ones_like(parameter).tril().bool()] if lower else parameter.grad
        assert grad.ne(0).all(), name


@each(LEARNED)
def test_gradients_are_right(case):
    background = case.build(dtype=torch.float64)
    features = batches(1)[0][0][:3].requires_grad_()
    signatures = torch.randn(CLASSES, WIDTH, dtype=torch.float64, requires_grad=True)
    scores = Scores(background)
    state = dict(scores.named_parameters())

    def call(features, signatures, *values):
        moved = dict(zip(state, values, strict=True))
        return functional_call(scores, moved, (features, signatures))

    assert torch.autograd.gradcheck(call, (features, signatures, *state.values()))


class Scores(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, features, signatures):
        return outputs(self.inner, features, signatures)


def test_cholesky_diagonal_stays_positive():
    torch.manual_seed(0)
    background = tl.backgrounds.Learned(WIDTH, form="cholesky")
    optimizer = torch.optim.SGD(background.parameters(), lr=0.05)
    features, _ = batches(1, dtype=torch.float32)[0]
    for _ in range(20):
        optimizer.zero_grad()
        background.whiten(features).square().mean().backward()
        optimizer.step()
    factor = torch.linalg.cholesky(background.precision)
    assert background.matrix.diagonal().min() < 0
    assert_close(factor.diagonal(), background.matrix.diagonal().exp())
    assert_close(factor.tril(-1), background.matrix.tril(-1), rtol=1e-4, atol=1e-5)


def test_matrix_is_solved_where_a_decomposition_has_no_gradient():
    background = tl.backgrounds.Learned(WIDTH, form="matrix", dtype=torch.float64)
    with torch.no_grad():
        background.matrix.copy_(torch.eye(WIDTH))
    features, _ = batches(1)[0]
    background.whiten(features).pow(3).sum().backward()
    assert background.matrix.grad.isfinite().all()

    matrix = torch.eye(WIDTH, dtype=torch.float64, requires_grad=True)
    vectors, values, _ = torch.linalg.svd(matrix @ matrix.T)
    ((features @ vectors) / values.sqrt()).pow(3).sum().backward()
    assert matrix.grad.isnan().any()


@each([case for case in LEARNED if not case.options])
def test_nothing_but_gradients_moves_it(case):
    background = case.build()
    before = {name: value.clone() for name, value in background.state_dict().items()}
    for features, targets in batches(3, dtype=torch.float32):
        background.observe(features, targets)
    for name, value in background.state_dict().items():
        assert torch.equal(value, before[name])


@each([case for case in LEARNED if not case.options])
def test_same_seed_same_start(case):
    first, second = case.build().state_dict(), case.build().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
