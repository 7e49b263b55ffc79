import pytest
import torch
from heads.cases import CASES, PATHS, batch, every_case, has_state, make, moved, where
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from torchlace.heads import AMC, ArcFace, CosFace, SphereFace

SMOOTH = where(lambda head: not isinstance(head, (AMC, ArcFace, CosFace, SphereFace)))
STATELESS = where(lambda head: not has_state(head))


class Loss(torch.nn.Module):
    def __init__(self, head, targets, **options):
        super().__init__()
        self.head, self.targets, self.options = head, targets, options

    def forward(self, features):
        return self.head.loss(features, self.targets, **self.options)


def as_function(head, targets, **options):
    module = Loss(head, targets, **options)
    names = [f"head.{name}" for name, _ in head.named_parameters()]

    def function(features, *parameters):
        return functional_call(module, dict(zip(names, parameters, strict=True)), (features,))

    return function


def inputs(head, features):
    parameters = [p.detach().clone().requires_grad_() for p in head.parameters()]
    return (features.clone().requires_grad_(), *parameters)


@every_case
def test_gradient_of_the_loss(case):
    head = moved(case)
    x, y = batch(8, seed=3, ignored=-100)
    weight = torch.linspace(0.5, 2, head.num_classes, dtype=x.dtype)
    function = as_function(head, y, weight=weight, label_smoothing=0.1)
    assert gradcheck(function, inputs(head, x), fast_mode=True)


@pytest.mark.parametrize("case", STATELESS, ids=repr)
def test_gradient_of_the_loss_in_training(case):
    head = make(case).train()
    x, y = batch(8, seed=4)
    assert gradcheck(as_function(head, y), inputs(head, x))


@pytest.mark.parametrize("case", [case for case in SMOOTH if case in PATHS], ids=repr)
def test_second_gradient_of_the_loss(case):
    head = moved(case)
    x, y = batch(4, seed=5)
    assert gradgradcheck(as_function(head, y), inputs(head, x), atol=1e-4, fast_mode=True)


@every_case
def test_every_parameter_receives_a_gradient(case):
    head = make(case).train()
    head.loss(*batch()).backward()
    without = [
        name for name, p in head.named_parameters() if p.grad is None or not p.grad.abs().max() > 0
    ]
    assert not without


def test_cases_have_distinct_names():
    assert len({case.name for case in CASES}) == len(CASES)
