"""Each margin against its formula in angles, and against pytorch-metric-learning."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses
from torch.testing import assert_close

from torchlace.functional import (
    additive_angular_margin,
    additive_cosine_margin,
    multiplicative_angular_margin,
)

THETA = torch.linspace(0, math.pi, 2001, dtype=torch.float64)[1:-1]


def arc(theta, margin):
    past = theta > math.pi - margin
    return torch.where(past, theta.cos() - margin * math.sin(margin), (theta + margin).cos())


def cos(theta, margin):
    return theta.cos() - margin


def sphere(theta, margin):
    turns = (margin * theta / math.pi).floor()
    return (-1) ** turns * (margin * theta).cos() - 2 * turns


MARGINS = [
    pytest.param(additive_angular_margin, arc, margin, id=f"arcface-{margin}")
    for margin in (0.05, 0.5, 1.5)
]
MARGINS += [
    pytest.param(additive_cosine_margin, cos, margin, id=f"cosface-{margin}")
    for margin in (0.1, 0.4)
]
MARGINS += [
    pytest.param(multiplicative_angular_margin, sphere, margin, id=f"sphereface-{margin}")
    for margin in (1.0, 1.35, 2.0, 4.0)
]


@pytest.mark.parametrize(("function", "formula", "margin"), MARGINS)
def test_equals_the_formula_in_angles(function, formula, margin):
    assert_close(function(THETA.cos(), margin), formula(THETA, margin), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("function", "formula", "margin"), MARGINS)
def test_fp32_is_close_to_fp64(function, formula, margin):
    found = function(THETA.cos().float(), margin).double()
    assert_close(found, formula(THETA, margin), rtol=0, atol=2e-3)


@pytest.mark.parametrize(
    ("function", "reference", "margin"),
    [
        (additive_angular_margin, losses.ArcFaceLoss(4, 3, margin=math.degrees(0.5)), 0.5),
        (additive_cosine_margin, losses.CosFaceLoss(4, 3, margin=0.4), 0.4),
        (multiplicative_angular_margin, losses.SphereFaceLoss(4, 3, margin=2), 2),
        (multiplicative_angular_margin, losses.SphereFaceLoss(4, 3, margin=4), 4),
    ],
    ids=["arcface", "cosface", "sphereface-2", "sphereface-4"],
)
def test_equals_pytorch_metric_learning(function, reference, margin):
    expected = reference.modify_cosine_of_target_classes(THETA.cos())
    assert_close(function(THETA.cos(), margin), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("function", "formula", "margin"), MARGINS)
def test_finite_at_the_ends_and_just_beyond(function, formula, margin, dtype):
    beyond = 1 + torch.finfo(dtype).eps
    cosine = torch.tensor([1, -1, beyond, -beyond, 0], dtype=dtype, requires_grad=True)
    found = function(cosine, margin)
    found.sum().backward()
    assert found.isfinite().all()
    assert cosine.grad.isfinite().all()
    ends = formula(torch.tensor([0, math.pi, 0, math.pi, math.pi / 2]), margin)
    assert_close(found.float(), ends, rtol=0, atol=3e-3)


@pytest.mark.parametrize(("function", "formula", "margin"), MARGINS)
def test_gradients(function, formula, margin):
    cosine = torch.tensor([-0.99, -0.7, -0.2, 0.3, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: function(value, margin), cosine)


@settings(max_examples=100)
@given(
    st.sampled_from(
        [
            (additive_angular_margin, 0, math.pi / 2),
            (additive_cosine_margin, 0, 1),
            (multiplicative_angular_margin, 1, 6),
        ]
    ),
    st.floats(0, 1),
    st.floats(0, math.pi),
    st.floats(0, math.pi),
)
def test_larger_angles_never_score_more_and_no_score_rises(kind, position, one, other):
    function, low, high = kind
    margin = low + position * (high - low)
    near, far = sorted((one, other))
    cosines = torch.tensor([near, far], dtype=torch.float64).cos()
    found = function(cosines, margin)
    assert found[0] >= found[1] - 1e-7
    assert (found <= cosines + 1e-7).all()
