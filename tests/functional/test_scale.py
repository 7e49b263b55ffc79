"""What a scale allows, against optima found by descent and published numbers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlace.functional import (
    adacos_scale,
    auto_scale,
    cosine_logits,
    loss_floor,
    max_probability,
    scale_for,
)


def simplex(classes):
    """Unit vectors at equal, largest angles."""
    return torch.eye(classes, dtype=torch.float64) - 1 / classes


@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize("scale", [0.5, 1.0, 6.5, 30.0])
def test_reached_on_the_simplex(classes, scale):
    logits = cosine_logits(simplex(classes), simplex(classes), scale)
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(classes))
    probability = logits.softmax(1).diagonal()
    assert loss.item() == pytest.approx(loss_floor(classes, scale), abs=1e-12)
    assert probability.min().item() == pytest.approx(max_probability(classes, scale))
    assert probability.max().item() == pytest.approx(max_probability(classes, scale))


@given(st.integers(2, 10_000), st.floats(0.01, 0.9999))
def test_a_scale_for_a_probability_lets_all_classes_reach_it(classes, share):
    probability = 1 / classes + share * (1 - 1 / classes)
    scale = scale_for(classes, probability)
    assert max_probability(classes, scale) == pytest.approx(probability)


def test_probabilities_that_no_scale_reaches_are_refused():
    for probability in (0.1, 0.05, 1, 1.5):
        with pytest.raises(ValueError, match="probability must lie in"):
            scale_for(10, probability)


@pytest.mark.parametrize(("classes", "scale"), [(2, 1.0), (4, 1.0), (4, 4.0)])
def test_descent_finds_the_floor_and_not_less(classes, scale):
    torch.manual_seed(0)
    features, signatures = torch.randn(2, classes, classes, dtype=torch.float64).unbind()
    parameters = [features.requires_grad_(), signatures.requires_grad_()]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    for _ in range(400):
        loss = torch.nn.functional.cross_entropy(
            cosine_logits(features, signatures, scale), torch.arange(classes)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    floor = loss_floor(classes, scale)
    assert floor - 1e-9 <= loss.item() < floor + 1e-3


@pytest.mark.parametrize(
    ("classes", "probability", "floor", "scale"),
    [(10, 0.252, 1.38, 3.11), (20, 0.131, 2.03, 4.16), (100, 0.027, 3.61, 6.50)],
)
def test_published_cases(classes, probability, floor, scale):
    assert max_probability(classes, 1.0) == pytest.approx(probability, abs=5e-4)
    assert loss_floor(classes, 1.0) == pytest.approx(floor, abs=5e-3)
    assert adacos_scale(classes) == pytest.approx(scale, abs=5e-3)


def test_few_classes():
    assert adacos_scale(2) == adacos_scale(3) == pytest.approx(math.sqrt(2) * math.log(2))
    assert auto_scale(2) == pytest.approx(math.log(99) / 2)
    assert loss_floor(1, 3.0) == 0.0
    assert max_probability(1, 3.0) == 1.0
    with pytest.raises(ValueError, match=r"at least 2, got 1: .*nothing to tell apart"):
        auto_scale(1)


@pytest.mark.parametrize("classes", [2, 3, 10, 100, 10**6])
def test_the_automatic_scale_allows_the_same_probability_for_every_number_of_classes(classes):
    assert max_probability(classes, auto_scale(classes)) == pytest.approx(0.99)


@pytest.mark.parametrize("classes", [0, -1, 2.0])
def test_no_classes(classes):
    for allowed in (auto_scale, lambda c: loss_floor(c, 1.0), lambda c: max_probability(c, 1.0)):
        with pytest.raises((TypeError, ValueError), match="num_classes must be"):
            allowed(classes)


@given(st.integers(2, 10**6), st.floats(0.01, 1e4))
def test_consistent_and_monotone(classes, scale):
    assert auto_scale(classes) > 0
    assert auto_scale(classes + 1) >= auto_scale(classes)
    assert max_probability(classes, scale) == pytest.approx(math.exp(-loss_floor(classes, scale)))
    assert loss_floor(classes, scale * 1.1) <= loss_floor(classes, scale)
    assert 0 <= loss_floor(classes, scale) <= math.log(classes) + 1e-9
