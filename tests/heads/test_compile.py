import copy

import pytest
import torch
from backgrounds.cases import absolute
from heads.cases import CASES, batch, every_case, gradients, is_classwise, make, move, moved, where
from torch.testing import assert_close

INDUCTOR = [c for c in CASES if c.name in ("softmax", "lace", "arcface", "lace-published")]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()


def check_training(head, backend, steps=3, **tolerance):
    eager = copy.deepcopy(head)
    compiled = torch.compile(head.loss, fullgraph=True, backend=backend)
    for step in range(steps):
        x, y = batch(seed=step, dtype=next(head.parameters()).dtype)
        x.requires_grad_()
        found, expected = compiled(x, y), eager.loss(x, y)
        assert_close(found, expected, **tolerance)
        assert_close(gradients(found, head, x), gradients(expected, eager, x), **tolerance)
    assert_close(absolute(head.state_dict()), absolute(eager.state_dict()), **tolerance)


def check_scores(head, backend, **tolerance):
    x, _ = batch(seed=9, dtype=next(head.parameters()).dtype)
    compiled = torch.compile(head, fullgraph=True, backend=backend)
    assert_close(compiled(x), head(x), **tolerance)


@every_case
def test_training_step(case):
    check_training(make(case).train(), "aot_eager")


@every_case
def test_scores_in_evaluation(case):
    check_scores(moved(case, steps=2), "aot_eager")


@pytest.mark.parametrize("case", where(lambda head: not is_classwise(head))[::8], ids=repr)
def test_training_step_in_chunks(case):
    check_training(make(case, chunk=2).train(), "aot_eager")


def test_refresh_happens_inside_the_compiled_step():
    case = next(c for c in CASES if c.name == "lace in feature space")
    head = make(case)
    move(head, 2)
    check_training(head, "aot_eager", steps=6)


@pytest.mark.parametrize("case", INDUCTOR, ids=repr)
def test_default_backend(case):
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    head = make(case, dtype=torch.float32).train()
    check_training(head, "inductor", **tolerance)
    check_scores(head.eval(), "inductor", **tolerance)
