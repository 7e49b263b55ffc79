import copy

import pytest
import torch
from backgrounds.cases import absolute
from heads.cases import CASES, PATHS, batch, gradients, is_classwise, make, move, moved, registered
from torch.testing import assert_close

# They compute nothing that the rest, or lace in the default backend, does not.
OTHERS = ("amc", "normface", "lace", "lace on low-rank", "joint")
TRAINED = [case for case in PATHS if case.name not in OTHERS]
SCORED = [c for c in TRAINED if c.name == "softmax" or is_classwise(make(c))]


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


@pytest.mark.parametrize("case", TRAINED, ids=repr)
def test_training_step(case):
    check_training(make(case).train(), "aot_eager")


@pytest.mark.parametrize("case", SCORED, ids=repr)
def test_scores_in_evaluation(case):
    check_scores(moved(case, steps=2), "aot_eager")


def test_training_step_in_chunks():
    check_training(make(registered("arcface"), chunk=2).train(), "aot_eager")


def test_refresh_happens_inside_the_compiled_step():
    case = next(c for c in CASES if c.name == "lace in feature space")
    head = make(case)
    move(head, 2)
    check_training(head, "aot_eager", steps=6)


def test_default_backend():
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    head = make(registered("lace"), dtype=torch.float32).train()
    check_training(head, "inductor", **tolerance)
    check_scores(head.eval(), "inductor", **tolerance)
