"""``reset_parameters`` gives a head as fresh as a constructed one, also out of empty memory."""

import pytest
import torch
from heads.cases import CLASSES, WIDTH, Case, batch, crossed, each_path, make, move
from torch.testing import assert_close

SAME = {"rtol": 0, "atol": 0}


def build(case: Case):
    torch.manual_seed(5)
    return case.build(WIDTH, CLASSES)


def reset(head):
    torch.manual_seed(5)
    head.reset_parameters()
    return head


def from_memory(case):
    with torch.device("meta"):
        head = case.build(WIDTH, CLASSES)
    head.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*head.parameters(), *head.buffers()):
            tensor.fill_(torch.nan)
    return head


def from_training(case):
    head = make(case, dtype=torch.float32)
    move(head, 4, dtype=torch.float32)
    return head.calibrate(*batch(32, seed=50, dtype=torch.float32))


def assert_fresh(head, case):
    fresh = build(case)
    assert_close(dict(head.named_buffers()), dict(fresh.named_buffers()), **SAME)
    state, expected = head.state_dict(), fresh.state_dict()
    redrawn = head.signatures.detach() if case.name == "lace low-rank-learned whitened" else None
    if redrawn is not None:
        # Drawn a second time once its width was known; the same distribution is all there is.
        assert redrawn.abs().max() <= WIDTH**-0.5
        assert redrawn.std() == pytest.approx((3 * WIDTH) ** -0.5, rel=0.3)
        for key in ("weight", "background.factor"):
            del state[key], expected[key]
    assert_close(dict(state), dict(expected), **SAME)


@crossed("origin", [from_memory, from_training])
def test_as_fresh_as_a_constructed_one(case, origin):
    assert_fresh(reset(origin(case)), case)


@each_path
def test_trains_as_a_constructed_one(case):
    first, second = reset(from_memory(case)), build(case)
    for head in (first, second):
        move(head, 5, dtype=torch.float32)
    assert_close(dict(first.state_dict()), dict(second.state_dict()), **SAME)
