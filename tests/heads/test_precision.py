"""Heads compute in single precision or better, whatever they are given."""

import copy

import pytest
import torch
from heads.cases import CLASSES, batch, each_path, gradients, has_state, make, moved, paths_where
from torch.testing import assert_close

import torchlace as tl
from torchlace.heads import LACE

SAME = {"rtol": 0, "atol": 0}
half = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
WEIGHT = torch.linspace(0.3, 1.7, CLASSES)


@each_path
@half
def test_half_precision_features(case, dtype):
    head = moved(case, dtype=torch.float32)
    x, _ = batch(dtype=dtype)
    assert head(x).dtype == torch.float32
    assert_close(head(x), head(x.float()), **SAME)
    assert_close(head.probabilities(x), head.probabilities(x.float()), **SAME)


@each_path
@half
def test_half_precision_loss_and_training(case, dtype):
    head = moved(case, dtype=torch.float32).train()
    twin = copy.deepcopy(head)
    x, y = batch(dtype=dtype)
    x.requires_grad_()
    wide = x.detach().float().requires_grad_()
    loss, expected = (
        head.loss(x, y, weight=WEIGHT),
        twin.loss(wide, y, weight=WEIGHT),
    )
    assert loss.dtype == torch.float32
    assert_close(loss, expected, **SAME)
    found, exact = gradients(loss, head, x), gradients(expected, twin, wide)
    exact["features"] = exact["features"].to(dtype)
    assert_close(found, exact, **SAME)
    assert_close(head.state_dict(), twin.state_dict(), **SAME)


@each_path
def test_autocast(case):
    head = moved(case, dtype=torch.float32)
    x, y = batch(dtype=torch.float32)
    x.requires_grad_()
    scores = head(x)
    twin = copy.deepcopy(head).train()
    expected = twin.loss(x, y, weight=WEIGHT)
    head.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head.loss(x, y, weight=WEIGHT)
    assert loss.dtype == torch.float32
    assert_close(loss, expected, **SAME)
    assert_close(gradients(loss, head, x), gradients(expected, twin, x), **SAME)
    assert_close(head.state_dict(), twin.state_dict(), **SAME)
    fresh = moved(case, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(fresh(x), scores, **SAME)
        assert_close(fresh.probabilities(x), torch.softmax(scores, 1), **SAME)


@paths_where(lambda head: isinstance(head, LACE) and not hasattr(head.background, "cosines"))
def test_whitening_and_folding_inside_autocast(case):
    head = moved(case, dtype=torch.float32)
    x, _ = batch(dtype=torch.float32)
    z, s, scores = head.whiten(x), head.whitened_signatures(), head.fold()(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_close(head.whiten(x), z, **SAME)
        assert_close(head.whitened_signatures(), s, **SAME)
        folded = head.fold()
    assert_close(folded(x), scores, **SAME)


@each_path
def test_cast_to_double(case):
    head = moved(case, dtype=torch.float32).double()
    x, y = batch()
    assert head(x).dtype == head.loss(x, y).dtype == torch.float64
    tensors = [*head.parameters(), *head.buffers()]
    assert {t.dtype for t in tensors} == {torch.float64}
    head.train().loss(x, y).backward()
    assert {p.grad.dtype for p in head.parameters()} == {torch.float64}


@each_path
def test_cast_to_bfloat16(case):
    head = moved(case, dtype=torch.float32).bfloat16()
    assert {p.dtype for p in head.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in head.buffers()} == {torch.float32}
    x, y = batch(dtype=torch.bfloat16)
    assert head(x).dtype == head.loss(x, y).dtype == torch.float32
    wide = copy.deepcopy(head).float()
    assert_close(head(x), wide(x.float()), **SAME)
    assert_close(head.loss(x, y), wide.loss(x.float(), y), **SAME)


@paths_where(has_state)
def test_statistics_move_after_a_cast_to_bfloat16(case):
    head, exact = (moved(case, dtype=torch.float32) for _ in range(2))
    head.bfloat16().train()
    exact.bfloat16().float().train()
    before = copy.deepcopy(dict(head.named_buffers()))
    for step in range(12):
        x, y = batch(seed=step, dtype=torch.bfloat16)
        head.loss(x, y)
        exact.loss(x.float(), y)
    assert_close(dict(head.named_buffers()), dict(exact.named_buffers()))
    assert any(not torch.equal(b, before[name]) for name, b in head.named_buffers())


@each_path
def test_built_in_bfloat16(case):
    torch.manual_seed(0)
    head = case.build(6, 5, dtype=torch.bfloat16)
    x, y = batch(dtype=torch.bfloat16)
    loss = head.loss(x, y)
    loss.backward()
    assert loss.dtype == torch.float32
    assert {b.dtype for b in head.buffers()} == {torch.float32}
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


@each_path
def test_to_the_same_device_changes_nothing(case):
    head = moved(case)
    x, _ = batch()
    before, pointers = head(x), [p.data_ptr() for p in head.parameters()]
    assert head.to("cpu") is head
    assert [p.data_ptr() for p in head.parameters()] == pointers
    assert_close(head(x), before, **SAME)


@paths_where(lambda head: not hasattr(head, "heads"))
def test_double_features_follow_the_head(case):
    head = moved(case, dtype=torch.float32)
    x, _ = batch(dtype=torch.float64)
    assert head(x).dtype == make(case, dtype=torch.float32).weight.dtype


@pytest.mark.parametrize("name", tl.backgrounds.names())
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_background_of_another_precision(name, dtype):
    background = tl.backgrounds.create(name, 6, CLASSES, dtype=dtype)
    head = tl.LACE(6, CLASSES, background=background)
    x, y = batch(dtype=torch.float32)
    head.loss(x, y).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())
    assert torch.isfinite(head.eval()(x)).all()
