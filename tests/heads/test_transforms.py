import pytest
import torch
from heads.cases import batch, every_case, gradients, has_state, make, moved, registered, where
from torch.export import Dim, export
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.testing import assert_close


class Loss(torch.nn.Module):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, features, targets):
        return self.head.loss(features, targets)


def loss_gradient(head, x, y):
    module = Loss(head)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    return grad(lambda p, x: functional_call(module, p, (x, y)), argnums=(0, 1))(parameters, x)


def check_gradient(head, x, y):
    to_parameters, to_features = loss_gradient(head, x, y)
    leaf = x.clone().requires_grad_()
    expected = gradients(head.loss(leaf, y), head, leaf)
    assert_close(to_features, expected.pop("features"))
    assert_close({name.removeprefix("head."): g for name, g in to_parameters.items()}, expected)


@every_case
def test_export_with_any_batch_size(case):
    head = moved(case, steps=2)
    program = export(head, (batch(8)[0],), dynamic_shapes=({0: Dim("batch", min=2)},))
    for rows in (3, 16):
        x, _ = batch(rows, seed=4)
        assert_close(program.module()(x), head(x))


@every_case
def test_vmap_over_stacked_heads(case):
    heads = [moved(case, steps=2, seed=seed) for seed in range(3)]
    x, _ = batch()
    state = stack_module_state(heads)
    scores = vmap(lambda p, b: functional_call(heads[0], (p, b), (x,)))(*state)
    assert_close(scores, torch.stack([head(x) for head in heads]))


@every_case
def test_functional_gradient(case):
    check_gradient(moved(case, steps=2), *batch())


@pytest.mark.parametrize("case", where(lambda head: not has_state(head)), ids=repr)
def test_functional_gradient_in_training(case):
    check_gradient(make(case).train(), *batch())


@every_case
def test_jacobian_for_each_sample(case):
    head = moved(case, steps=2)
    x, _ = batch(4)
    found = vmap(jacrev(lambda row: head(row[None])[0]))(x)
    expected = torch.autograd.functional.jacobian(lambda x: head(x).sum(0), x).movedim(1, 0)
    assert_close(found, expected)


@pytest.mark.parametrize("name", ["softmax", "arcface"])
def test_functional_gradient_in_chunks(name):
    check_gradient(make(registered(name), chunk=2).train(), *batch())
