"""A sample with the label ``ignore_index`` has no influence at all: not on the state either."""

import torch
from heads.cases import (
    CLASSES,
    batch,
    cases_where,
    crossed,
    gradients,
    has_state,
    make,
    paths_where,
    where,
)
from torch.testing import assert_close


def padded(x, y, ignore_index, value):
    """The batch with ignored rows before, between and after its own."""
    rows = torch.full((3, x.shape[1]), value, dtype=x.dtype)
    labels = torch.full((3,), ignore_index)
    return torch.cat([rows, x[:5], rows, x[5:], rows]), torch.cat(
        [labels, y[:5], labels, y[5:], labels]
    )


@crossed("ignore_index", [-100, CLASSES - 1, CLASSES + 3], where(has_state))
def test_padding_changes_nothing(case, ignore_index):
    plain, other = make(case).train(), make(case).train()
    for step in range(5):
        x, y = batch(seed=step)
        x, y = x[y != ignore_index], y[y != ignore_index]
        x.requires_grad_()
        long_x, long_y = padded(x, y, ignore_index, 1e6)
        loss = plain.loss(x, y, ignore_index=ignore_index)
        padded_loss = other.loss(long_x, long_y, ignore_index=ignore_index)
        assert_close(padded_loss, loss)
        assert_close(gradients(padded_loss, other, x), gradients(loss, plain, x))
    assert_close(dict(other.eval().named_parameters()), dict(plain.eval().named_parameters()))
    assert_close(other(batch()[0]), plain(batch()[0]))


@cases_where(has_state)
def test_a_batch_of_padding_teaches_nothing(case):
    plain, other = make(case).train(), make(case).train()
    x, y = batch()
    assert other.loss(1e6 * x, torch.full_like(y, -100)) == 0
    for head in (plain, other):
        head.loss(x, y)
        for part in head.modules():
            if hasattr(part, "refresh"):
                for _ in range(60 if hasattr(part, "amount") else 1):
                    part.refresh()  # a limit of dimensions comes nearer by each
        head.eval()
    assert_close(other(x), plain(x))


@paths_where(has_state)
def test_samples_of_weight_zero_still_count_in_the_statistics(case):
    weighted, plain = make(case).train(), make(case).train()
    x, y = batch()
    weight = torch.ones(CLASSES, dtype=x.dtype)
    weight[2] = 0
    weighted.loss(x, y, weight=weight)
    plain.loss(x, y)
    assert_close(dict(weighted.named_buffers()), dict(plain.named_buffers()))
