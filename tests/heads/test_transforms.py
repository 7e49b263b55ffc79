import copy

import pytest
import torch
from heads.cases import (
    Loss,
    batch,
    each_path,
    gradients,
    has_state,
    lace_on,
    make,
    moved,
    paths_where,
    registered,
)
from torch.export import Dim, export
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.testing import assert_close

from torchlace.backgrounds import Running


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


@each_path
def test_export_with_any_batch_size(case):
    head = moved(case, steps=2)
    program = export(head, (batch(8)[0],), dynamic_shapes=({0: Dim("batch", min=2)},))
    for rows in (3, 16):
        x, _ = batch(rows, seed=4)
        assert_close(program.module()(x), head(x))


@each_path
def test_vmap_over_stacked_heads(case):
    heads = [moved(case, steps=2, seed=seed) for seed in range(3)]
    x, _ = batch()
    state = stack_module_state(heads)
    scores = vmap(lambda p, b: functional_call(heads[0], (p, b), (x,)))(*state)
    assert_close(scores, torch.stack([head(x) for head in heads]))


@each_path
def test_functional_gradient(case):
    check_gradient(moved(case, steps=2), *batch())


@paths_where(lambda head: not has_state(head))
def test_functional_gradient_in_training(case):
    check_gradient(make(case).train(), *batch())


@paths_where(has_state)
def test_functional_gradient_in_training_with_the_state_passed_in(case):
    head, alone = moved(case, steps=2).train(), moved(case, steps=2).train()
    x, y = batch()
    leaf = x.clone().requires_grad_()
    module = Loss(head)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    state = {name: b.clone() for name, b in module.named_buffers()}

    def loss(parameters, state):
        return functional_call(module, (parameters, state), (x, y))

    for _ in range(2):
        found = grad(loss)(parameters, state)
        expected = gradients(alone.loss(leaf, y), alone, leaf)
        expected.pop("features")
        assert_close({name.removeprefix("head."): g for name, g in found.items()}, expected)
    assert_close({name.removeprefix("head."): b for name, b in state.items()}, buffers(alone))
    assert clocks(head) == clocks(alone)


def buffers(module):
    return dict(module.named_buffers())


def clocks(module):
    return [part.steps for part in module.modules() if isinstance(part, Running)]


@pytest.mark.filterwarnings("ignore:There is a performance drop.*scatter_")
@each_path
def test_training_of_stacked_heads(case):
    heads = [moved(case, steps=2, seed=seed).train() for seed in range(3)]
    shared = Loss(copy.deepcopy(heads[0]))
    parameters, state = stack_module_state([Loss(head) for head in heads])
    if "head.background.probe" in state:
        pytest.skip("every sketch has random vectors of its own")
    x, y = batch()
    found = vmap(lambda p, b: functional_call(shared, (p, b), (x, y)))(parameters, state)
    assert_close(found, torch.stack([head.loss(x, y) for head in heads]))


@pytest.mark.parametrize("name", ["lace", "arcface"])
def test_gradient_for_each_sample(name):
    head = moved(registered(name), steps=2)
    x, y = batch(4)
    module = Loss(head)
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, row, label):
        return functional_call(module, parameters, (row[None], label[None]))

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)["head.weight"]
    for row, label, own in zip(x.split(1), y.split(1), found, strict=True):
        leaf = row.clone().requires_grad_()
        assert_close(own, gradients(head.loss(leaf, label), head, leaf)["weight"])


@pytest.mark.parametrize("inside", [False, True])
def test_a_background_does_not_learn_from_samples_kept_apart(inside):
    head = moved(lace_on("total"), steps=2).train()
    x, _ = batch(4)
    before = {name: b.clone() for name, b in buffers(head).items()}

    def score(row):
        return head(row[None]).sum()

    with pytest.raises(RuntimeError, match=r"call \.eval\(\) on the head"):
        vmap(grad(score) if inside else score)(x)
    assert_close(buffers(head), before, rtol=0, atol=0)


@each_path
def test_jacobian_for_each_sample(case):
    head = moved(case, steps=2)
    x, _ = batch(4)
    found = vmap(jacrev(lambda row: head(row[None])[0]))(x)
    expected = torch.autograd.functional.jacobian(lambda x: head(x).sum(0), x).movedim(1, 0)
    assert_close(found, expected)


@pytest.mark.parametrize("name", ["softmax", "arcface"])
def test_functional_gradient_in_chunks(name):
    check_gradient(make(registered(name), chunk=2).train(), *batch())
