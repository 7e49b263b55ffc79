"""A head is called more than once before gradients flow back: several views, a peek at logits."""

import copy

import pytest
import torch
from heads.cases import CLASSES, WIDTH, batch, each_path, needs_targets
from torch.testing import assert_close

import torchlace as tl


@each_path
def test_losses_of_three_views_in_one_backward(case):
    head = case.build(WIDTH, CLASSES, dtype=torch.float64)
    apart = copy.deepcopy(head)
    for step in range(5):
        views = [batch(seed=10 * step + view)[0] for view in range(3)]
        targets = batch(seed=step)[1]
        head.zero_grad()
        apart.zero_grad()
        sum(head.loss(view, targets) for view in views).backward()
        for view in views:
            apart.loss(view, targets).backward()
        for own, other in zip(head.parameters(), apart.parameters(), strict=True):
            assert_close(own.grad, other.grad)


@each_path
def test_logits_between_loss_and_backward(case):
    head = case.build(WIDTH, CLASSES, dtype=torch.float64)
    x, y = batch()
    for _ in range(4):
        loss = head.loss(x, y)
        if not needs_targets(head):
            head(x)
        loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_a_layer_used_twice():
    layer = tl.BackgroundNorm(4, refresh_every=1)
    x = torch.randn(16, 4, requires_grad=True)
    layer(layer(x)).square().sum().backward()
    assert torch.isfinite(x.grad).all()


def test_labels_of_small_integer_types():
    head = tl.Softmax(4, 200)
    x, y = torch.randn(4, 4), torch.tensor([0, 1, 2, 156])
    assert_close(head.loss(x, y.to(torch.uint8)), head.loss(x, y))
    assert_close(head.loss(x, y.int(), ignore_index=2), head.loss(x, y, ignore_index=2))


@pytest.mark.parametrize("name", ["lace", "normface", "softmax"])
def test_forward_mode_derivatives(name):
    head = tl.heads.create(name, 4, 3, dtype=torch.float64).eval()
    x, y = torch.randn(4, dtype=torch.float64), torch.tensor([1])

    def loss(row):
        return head.loss(row[None], y)

    forward = torch.func.jacfwd(loss)(x)
    assert_close(forward, torch.func.grad(loss)(x))
    assert_close(torch.func.hessian(loss)(x), torch.autograd.functional.hessian(loss, x))


@pytest.mark.parametrize("name", tl.heads.names())
def test_a_head_on_the_meta_device_can_be_shown(name):
    head = tl.heads.create(name, 4, 3, device="meta")
    assert repr(head) == repr(tl.heads.create(name, 4, 3))
    assert "3 classes" in head.describe()


def test_signatures_that_may_not_be_negative_live_among_the_features():
    assert tl.LACE(4, 3, nonnegative=True).signature_space == "features"


def test_a_peek_at_the_whitened_space_checks_its_input():
    with pytest.raises(ValueError, match=r"features must have shape \(N, 4\)"):
        tl.LACE(4, 3).whiten(torch.randn(2, 5))
    with pytest.raises(ValueError, match="unknown signature_space 'bogus'"):
        tl.LACE(4, 3, background="one-vs-one", signature_space="bogus")


def test_logits_that_say_nothing_have_temperature_one():
    assert tl.heads.fit_temperature(torch.zeros(5, 3), torch.arange(5) % 3) == 1


def test_what_autograd_keeps_follows_the_state():
    head = tl.LACE(4, 3, background="total", background_options={"refresh_every": 100})
    x = torch.randn(16, 4)
    before = head(x)
    head.background.whitening.mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    after = head(x)
    assert not torch.allclose(after, before, atol=1e-3)
    with torch.no_grad():
        assert_close(after, head.eval()(x))


def test_a_replayed_graph_may_have_changed_the_state():
    head = tl.LACE(4, 3)
    x, y = torch.randn(16, 4), torch.arange(16) % 3
    head.loss(x, y)
    head.background.whitening.data.mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tl.backgrounds.advance(head, 1)
    moved = head.background.transform(x)
    assert_close(moved, x @ head.background.whitening.T)
