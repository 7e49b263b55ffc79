"""Features of any leading dimensions are samples one below the other, as in torch.nn.Linear."""

import copy

import pytest
import torch
from heads.cases import batch, every_case, make, move
from torch.testing import assert_close

import torchlace as tl

X, Y = batch(24, ignored=-100)
SHAPE = (2, 3, 4)
PLACED = X.view(*SHAPE, -1), Y.view(SHAPE)


def exactly(found, expected):
    assert_close(found, expected, rtol=0, atol=0)


@every_case
def test_every_method(case):
    head = make(case)
    move(head, 3)
    flat, placed = copy.deepcopy(head), copy.deepcopy(head)
    exactly(placed.loss(*PLACED), flat.loss(X, Y))
    each = placed.loss(*PLACED, reduction="none", label_smoothing=0.1)
    assert each.shape == SHAPE
    exactly(each.flatten(), flat.loss(X, Y, reduction="none", label_smoothing=0.1))
    flat.eval().calibrate(X, Y)
    placed.eval().calibrate(*PLACED)
    exactly(dict(placed.state_dict()), dict(flat.state_dict()))
    for name in ("forward", "probabilities", "predict"):
        found, expected = getattr(placed, name)(PLACED[0]), getattr(flat, name)(X)
        assert found.shape == (*SHAPE, *expected.shape[1:])
        exactly(found.flatten(0, 2), expected)


def test_whitened_and_folded():
    head = tl.LACE(6, 5, dtype=X.dtype)
    move(head, 3)
    head.eval()
    exactly(head.whiten(PLACED[0]).flatten(0, 2), head.whiten(X))
    folded = head.fold()
    assert_close(folded.probabilities(PLACED[0]), head.probabilities(PLACED[0]))


def test_no_samples_in_one_dimension():
    head = tl.LACE(6, 5).eval()
    assert head(torch.zeros(0, 7, 6)).shape == (0, 7, 5)
    assert head.loss(torch.zeros(3, 0, 6), torch.zeros(3, 0).long()) == 0


def test_targets_take_the_same_dimensions():
    with pytest.raises(ValueError, match=r"targets must have shape \(2, 3, 4\).*got \(24,\)"):
        tl.Softmax(6, 5, dtype=X.dtype).loss(PLACED[0], Y)
