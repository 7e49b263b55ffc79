"""Cosine heads see no joint rotation and no positive scaling."""

import pytest
import torch
from heads.cases import batch, cases_where, is_cosine, make, move, variant
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import torchlace as tl

seeds = st.integers(0, 10_000)
lengths = st.floats(1e-3, 1e3)
few = settings(max_examples=6, database=None)

PLAIN = ["normface", "arcface", "cosface", "sphereface", "adacos"]
ESTIMATED = [
    ("within", {}),
    ("within", {"method": "newton-schulz", "ridge": 1.0}),
    ("within", {"mean": False}),
    ("within", {"covariance": False}),
    ("total", {}),
    ("total", {"shrinkage": "ledoit-wolf"}),
    ("one-vs-one", {"method": "newton-schulz"}),
    ("one-vs-one", {"mean": False}),
    ("one-vs-all", {}),
    ("one-vs-all", {"covariance": False}),
]


def rotation(seed, width=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q


@pytest.mark.parametrize("name", PLAIN)
@given(seed=seeds, length=lengths, other=lengths)
@few
def test_plain_heads(name, seed, length, other):
    torch.manual_seed(seed)
    q, (x, y) = rotation(seed), batch(seed=seed)
    head = tl.heads.create(name, 6, 5, dtype=torch.float64)
    turned = tl.heads.create(name, 6, 5, dtype=torch.float64)
    with torch.no_grad():
        turned.weight.copy_(other * head.weight @ q.T)
    for _ in range(3):
        assert_close(turned.loss(length * x @ q.T, y), head.loss(x, y))
        assert_close(turned(length * x @ q.T), head(x))


@pytest.mark.parametrize("form", ["factor", "matrix"])
@given(seed=seeds, length=lengths, other=lengths)
@few
def test_learned_backgrounds(form, seed, length, other):
    q, (x, y) = rotation(seed), batch(seed=seed)
    case = variant(form, "lace-learned", background_options={"form": form})
    head, turned = make(case, seed=seed), make(case)
    with torch.no_grad():
        turned.weight.copy_(other * head.weight @ q.T)
        turned.background.mean.copy_(length * q @ head.background.mean)
        matrix = head.background.matrix
        turned.background.matrix.copy_(
            matrix @ q.T / length if form == "factor" else length * q @ matrix
        )
    assert_close(turned(length * x @ q.T), head(x), rtol=1e-6, atol=1e-8)
    assert_close(turned.loss(length * x @ q.T, y), head.loss(x, y), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("background", "options"), ESTIMATED, ids=str)
@given(seed=seeds, length=lengths, other=lengths)
@settings(few, max_examples=3)
def test_estimated_backgrounds(background, options, seed, length, other):
    case = variant(
        "turned", background=background, signature_space="features", background_options=options
    )
    q = rotation(seed)
    head, turned = make(case, seed=seed).train(), make(case).train()
    with torch.no_grad():
        turned.weight.copy_(other * head.weight @ q.T)
        turned.bias.copy_(head.bias)
    for step in range(3):
        x, y = batch(seed=seed + step)
        assert_close(turned.loss(length * x @ q.T, y), head.loss(x, y), rtol=1e-7, atol=1e-8)
    assert_close(turned.eval()(length * x @ q.T), head.eval()(x), rtol=1e-7, atol=1e-8)


@cases_where(lambda head: is_cosine(head) and not getattr(head, "anchored", False))
@given(length=lengths)
@settings(few, max_examples=2)
def test_signatures_have_no_length(case, length):
    head = make(case)
    move(head, 2)
    x, y = batch(seed=5)
    before = head.eval().loss(x, y), head(x)
    with torch.no_grad():
        head.weight.mul_(length)
    assert_close((head.loss(x, y), head(x)), before)
