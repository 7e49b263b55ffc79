"""Class weights, smoothing, ignored labels and reductions mean what they mean in cross_entropy."""

import itertools

import pytest
import torch
from heads import reference
from heads.cases import (
    CLASSES,
    PATHS,
    batch,
    crossed,
    each_path,
    gradients,
    is_classwise,
    make,
    move,
    paths_where,
    where,
)
from torch.nn import functional as F
from torch.testing import assert_close

import torchlace as tl

WEIGHT = torch.linspace(0.3, 1.7, CLASSES, dtype=torch.float64)
COMBINATIONS = [
    {"weight": weight, "label_smoothing": smoothing, "ignore_index": ignore_index}
    for ignore_index, weight, smoothing in itertools.product([-100, 3], [None, WEIGHT], [0.0, 0.2])
]
FEW = [COMBINATIONS[i] for i in (0, 3, 5, 6)]
reductions = pytest.mark.parametrize("reduction", ["mean", "sum", "none"])


def test_softmax_is_cross_entropy_of_a_linear_layer():
    head = tl.Softmax(6, CLASSES, dtype=torch.float64)
    x, y = batch(ignored=-100)
    linear = F.linear(x, head.weight, head.bias)
    for options, reduction in itertools.product(COMBINATIONS, ["mean", "sum", "none"]):
        labels = torch.where(y < 0, options["ignore_index"], y)
        found = head.loss(x, labels, reduction=reduction, **options)
        expected = F.cross_entropy(linear, labels, reduction=reduction, **options)
        assert_close(found, expected)


@each_path
@reductions
def test_every_combination(case, reduction):
    head = make(case)
    history = move(head, 4)
    head.eval()
    for options in FEW:
        x, y = batch(8, seed=3, ignored=options["ignore_index"])
        found = head.loss(x, y, reduction=reduction, **options)
        expected = reference.loss(head, x, y, history, reduction=reduction, **options)
        assert_close(found, expected, rtol=1e-9, atol=1e-9)


@each_path
def test_ignored_samples_have_no_gradient(case):
    head = make(case).eval()
    x, y = batch(ignored=-100)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(head.loss(x, y, weight=WEIGHT, label_smoothing=0.1), x)
    assert not gradient[y == -100].any()
    assert gradient[y != -100].any(dim=1).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8, torch.int8], ids=str)
def test_labels_of_any_integer_type(dtype):
    for case in PATHS:
        head = make(case).eval()
        x, y = batch()
        assert_close(head.loss(x, y.to(dtype)), head.loss(x, y))
        assert_close(head.loss(x, y.to(dtype), ignore_index=2), head.loss(x, y, ignore_index=2))


@crossed("chunk", [2, 5], where(lambda head: not is_classwise(head)))
def test_chunks_of_classes_change_nothing(case, chunk):
    dense, chunked = make(case, chunk=None), make(case, chunk=chunk)
    for options in FEW:
        x, y = batch(ignored=options["ignore_index"])
        x.requires_grad_()
        expected, found = dense.loss(x, y, **options), chunked.loss(x, y, **options)
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
        assert_close(
            gradients(found, chunked, x), gradients(expected, dense, x), rtol=1e-10, atol=1e-10
        )
    assert_close(chunked.state_dict(), dense.state_dict(), rtol=1e-10, atol=1e-10)


@paths_where(lambda head: not is_classwise(head))
def test_chunks_at_the_edges(case):
    head = make(case, classes=2, chunk=1)
    for rows, ignored in ((8, None), (1, None), (0, None), (8, -100)):
        x, y = batch(rows, classes=2)
        y = y if ignored is None else torch.full_like(y, ignored)
        x.requires_grad_()
        loss = head.loss(x, y, label_smoothing=0.1)
        assert torch.isfinite(loss)
        for name, gradient in gradients(loss, head, x).items():
            assert torch.isfinite(gradient).all(), name


def test_chunks_are_chosen_by_size(monkeypatch):
    monkeypatch.setattr("torchlace.heads.base._DENSE_LIMIT", 40)
    calls = []
    real = tl.functional.chunked_cross_entropy
    monkeypatch.setattr(
        "torchlace.heads.softmax.chunked_cross_entropy",
        lambda *args, **options: calls.append(options["chunk"]) or real(*args, **options),
    )
    head = tl.Softmax(6, CLASSES, dtype=torch.float64)
    head.loss(*batch(8))
    assert calls == []
    x, y = batch(9)
    assert_close(head.loss(x, y), F.cross_entropy(head(x), y))
    assert len(calls) == 1
