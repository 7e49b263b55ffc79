import pytest
import torch
from heads.cases import (
    CLASSES,
    WIDTH,
    batch,
    cases_where,
    each_path,
    gradients,
    is_cosine,
    move,
)

SINGLE = torch.float32


def check_finite(head, x, y, **options):
    x = x.clone().requires_grad_()
    loss = head.loss(x, y, **options)
    assert torch.isfinite(loss), "loss"
    for name, gradient in gradients(loss, head, x).items():
        assert torch.isfinite(gradient).all(), name
    return loss


def check_in_both_modes(head, x, y, **options):
    for _ in range(2):
        check_finite(head.train(), x, y, **options)
    check_finite(head.eval(), x, y, **options)
    assert torch.isfinite(head(x)).all()
    assert all(torch.isfinite(b).all() for b in head.buffers())


fresh_or_moved = pytest.mark.parametrize("steps", [0, 3], ids=["fresh", "moved"])


def prepared(case, steps, classes=CLASSES):
    torch.manual_seed(0)
    head = case.build(WIDTH, classes, dtype=SINGLE)
    if steps:
        move(head, steps, dtype=SINGLE, classes=classes)
    return head


@each_path
@fresh_or_moved
def test_zero_features(case, steps):
    _, y = batch(dtype=SINGLE)
    check_in_both_modes(prepared(case, steps), torch.zeros(16, WIDTH), y)


@each_path
@fresh_or_moved
def test_one_zero_row(case, steps):
    x, y = batch(dtype=SINGLE)
    x[3] = 0
    check_in_both_modes(prepared(case, steps), x, y)


@cases_where(is_cosine)
@pytest.mark.parametrize("size", [1e20, 1e-20])
def test_huge_and_tiny_features(case, size):
    x, y = batch(dtype=SINGLE)
    check_in_both_modes(prepared(case, 3), x * size, y)


@cases_where(is_cosine)
@pytest.mark.parametrize("size", [1e20, 1e-20])
def test_scores_do_not_depend_on_the_size_of_the_features(case, size):
    (x, y), ordinary, extreme = batch(dtype=SINGLE), prepared(case, 0), prepared(case, 0)
    with torch.no_grad():
        for head in (ordinary, extreme):
            mean = getattr(getattr(head, "background", None), "mean", None)
            if isinstance(mean, torch.nn.Parameter):
                mean.zero_()
    for _ in range(3):
        loss, other = ordinary.loss(x, y), extreme.loss(x * size, y)
        torch.testing.assert_close(other, loss, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(
        extreme.eval()(x * size),
        ordinary.eval()(x),
        rtol=1e-3,
        atol=1e-2 * torch.as_tensor(ordinary.scale).item(),
    )


@each_path
@fresh_or_moved
def test_two_classes(case, steps):
    x, y = batch(dtype=SINGLE, classes=2)
    head = prepared(case, steps, classes=2)
    check_in_both_modes(head, x, y)
    assert head(x).shape == (16, 2)


@each_path
@fresh_or_moved
def test_one_sample(case, steps):
    check_in_both_modes(prepared(case, steps), *batch(1, dtype=SINGLE))


@each_path
@fresh_or_moved
def test_empty_batch(case, steps):
    head = prepared(case, steps)
    x, y = torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.long)
    check_in_both_modes(head, x, y)
    assert head(x).shape == (0, CLASSES)
    assert head.loss(x, y) == 0
    assert head.loss(x, y, reduction="none").shape == (0,)


@each_path
def test_empty_batch_teaches_nothing(case):
    head = prepared(case, 1).eval()
    x, _ = batch(dtype=SINGLE)
    before = head(x)
    head.train().loss(torch.zeros(0, WIDTH), torch.zeros(0, dtype=torch.long))
    torch.testing.assert_close(head.eval()(x), before)


@each_path
@fresh_or_moved
def test_all_samples_ignored(case, steps):
    x, _ = batch(dtype=SINGLE)
    head = prepared(case, steps)
    for ignore_index in (-100, 3):
        y = torch.full((16,), ignore_index)
        check_in_both_modes(head, x, y, ignore_index=ignore_index)
        assert head.loss(x, y, ignore_index=ignore_index) == 0
