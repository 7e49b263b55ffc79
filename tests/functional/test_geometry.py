"""Directions, cosines and angles at the ends of their ranges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import jacrev, vmap
from torch.nn import functional as F
from torch.testing import assert_close

from torchlace.functional import angle, cosine, cosine_logits, unit
from torchlace.functional.geometry import negligible

SIZES = [1e-20, 1e-10, 1.0, 1e10, 1e20]


def rows(n, d=5, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("size", SIZES)
def test_unit_at_any_magnitude(size):
    vectors = rows(7, dtype=torch.float32)
    expected = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    scaled = (vectors * size).requires_grad_()
    found = unit(scaled)
    assert_close(found.double(), expected, rtol=1e-6, atol=1e-6)
    found[:, 0].sum().backward()
    assert scaled.grad.isfinite().all()


def test_unit_of_zero_is_zero_with_a_finite_gradient():
    vectors = torch.zeros(2, 3, requires_grad=True)
    found = unit(vectors)
    found.sum().backward()
    assert not found.any()
    assert vectors.grad.isfinite().all()


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_unit_of_what_is_next_to_nothing(dtype, compiled):
    function = torch.compile(unit, backend="eager", fullgraph=True) if compiled else unit
    directions = F.normalize(rows(6))
    parts = torch.tensor([0, 1e-9, 0.4, 3, 1e9, 1e20], dtype=torch.float64)
    lengths = negligible(dtype) * parts[:, None]
    vectors = (directions * lengths).to(dtype).requires_grad_()
    found = function(vectors)
    assert_close(found[3:].double(), directions[3:], rtol=1e-6, atol=1e-6)
    assert_close(found[:3], torch.zeros_like(found[:3]))
    slopes = rows(6, seed=1)
    (found * slopes.to(dtype)).sum().backward()
    along = (slopes * directions).sum(1, keepdim=True)
    expected = (slopes - along * directions) / lengths
    assert_close(vectors.grad[:3].double(), slopes[:3], rtol=1e-6, atol=0)
    assert_close(
        vectors.grad[3:].double() * lengths[3:], expected[3:] * lengths[3:], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_unit_may_be_told_what_counts_as_zero(compiled):
    function = torch.compile(unit, backend="eager", fullgraph=True) if compiled else unit
    vectors = torch.tensor([[0.3, 0.4], [3e-5, 4e-5]])
    assert_close(function(vectors, 1e-3), torch.tensor([[0.6, 0.8], [3e-5, 4e-5]]))
    assert_close(cosine_logits(vectors, torch.eye(2), 10.0, 1e-3)[1], 10 * vectors[1])


def test_unit_of_nothing():
    assert unit(torch.zeros(0, 3)).shape == (0, 3)
    assert unit(torch.zeros(3, 0)).shape == (3, 0)


def logits(vectors, others):
    return cosine_logits(vectors, others, 3.0)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [(unit, rows(3)[None]), (logits, (rows(3), rows(2, seed=1)))],
    ids=["unit", "logits"],
)
def test_gradients(function, inputs):
    inputs = tuple(each.requires_grad_() for each in inputs)
    assert torch.autograd.gradcheck(
        function, inputs, check_forward_ad=True, check_batched_grad=True
    )
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True)


@pytest.mark.parametrize("frozen", [0, 1])
def test_logits_where_one_side_is_frozen(frozen):
    both = [rows(3).requires_grad_(), rows(2, seed=1).requires_grad_()]
    weights = rows(3, 2, seed=2)
    expected = torch.autograd.grad((logits(*both) * weights).sum(), both[1 - frozen])
    both[frozen] = both[frozen].detach()
    assert_close(torch.autograd.grad((logits(*both) * weights).sum(), both[1 - frozen]), expected)


def test_logits_read_no_memory_that_was_not_written():
    vectors, others = rows(3).requires_grad_(), rows(2, seed=1)
    expected = logits(vectors, others)
    slope = torch.autograd.grad(expected.sum(), vectors)[0]
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
    try:
        assert_close(logits(vectors, others), expected)
        assert_close(torch.autograd.grad(logits(vectors, others).sum(), vectors)[0], slope)
        each = vmap(jacrev(lambda row: logits(row[None], others)[0]))(vectors.detach())
    finally:
        torch.use_deterministic_algorithms(False)
    assert_close(each.sum(1), slope)


def test_logits_under_autocast():
    vectors, others = rows(3, dtype=torch.float32).requires_grad_(), rows(2, dtype=torch.float32)
    expected = logits(vectors, others)
    with torch.autocast("cpu", torch.bfloat16):
        found = logits(vectors, others)
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), expected, rtol=0.02, atol=0.02)
    slopes = [torch.autograd.grad(each.float().sum(), vectors)[0] for each in (found, expected)]
    assert slopes[0].dtype == torch.float32
    assert_close(*slopes)


def test_logits_of_more_dimensions():
    found = logits(rows(6).view(2, 3, 5), rows(2, seed=1))
    assert_close(found, logits(rows(6), rows(2, seed=1)).view(2, 3, 2))


@pytest.mark.parametrize("size", SIZES)
def test_cosine_of_every_pair(size):
    vectors, others = rows(4), rows(3, seed=1)
    found = cosine((vectors * size).float(), (others / size).float())
    for n, x in enumerate(vectors):
        for c, y in enumerate(others):
            assert found[n, c].item() == pytest.approx(
                (x @ y / x.norm() / y.norm()).item(), abs=1e-6
            )


@pytest.mark.parametrize("scale", [30.0, torch.tensor(30.0, dtype=torch.float64)])
def test_cosine_logits_are_scaled_cosines(scale):
    assert_close(
        cosine_logits(rows(4), rows(3, seed=1), scale), 30 * cosine(rows(4), rows(3, seed=1))
    )


@pytest.mark.parametrize("size", SIZES)
def test_angle_is_the_arc_cosine(size):
    vectors, others = rows(6), rows(6, seed=1)
    expected = (vectors * others).sum(1) / vectors.norm(dim=1) / others.norm(dim=1)
    found = angle((vectors * size).float(), (others / size).float())
    assert_close(found.double(), expected.acos(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("sign", "expected"), [(1, 0.0), (-1, math.pi)])
def test_angle_of_exact_directions_has_a_finite_gradient(sign, expected):
    vectors = rows(200, dtype=torch.float32).requires_grad_()
    others = (sign * 3 * vectors.detach()).requires_grad_()
    found = angle(vectors, others)
    found.sum().backward()
    assert_close(found, torch.full_like(found, expected), rtol=0, atol=1e-3)
    assert vectors.grad.isfinite().all()
    assert others.grad.isfinite().all()


@pytest.mark.parametrize("zeros", ["one", "both"])
@pytest.mark.parametrize("size", [0.0, 1e-41, 1e-22])
def test_angle_of_a_zero_vector_has_a_finite_gradient(zeros, size):
    vectors = torch.full((1, 3), size, requires_grad=True)
    others = (-size * torch.ones(1, 3) if zeros == "both" else torch.ones(1, 3)).requires_grad_()
    angle(vectors, others).sum().backward()
    assert vectors.grad.isfinite().all()
    assert others.grad.isfinite().all()


@settings(max_examples=60)
@given(st.floats(0, math.pi), st.floats(-15, 15))
def test_angle_recovers_any_angle(theta, exponent):
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    second = torch.tensor([[math.cos(theta), math.sin(theta)]], dtype=torch.float64) * 10**exponent
    assert angle(first, second).item() == pytest.approx(theta, abs=1e-12)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(1e-10, 1e10), st.floats(1e-10, 1e10))
def test_cosine_ignores_lengths_and_joint_rotations(seed, first, second):
    x, y, turn = (
        rows(3, seed=seed),
        rows(2, seed=seed + 1),
        torch.linalg.qr(rows(5, seed=seed + 2)).Q,
    )
    assert_close(cosine(first * x @ turn, second * y @ turn), cosine(x, y), rtol=1e-9, atol=1e-9)
