"""Compiled steps move the state as eager ones do, and are compiled once."""

import pytest
import torch
from backgrounds.cases import (
    CLASSES,
    LEARNED,
    ONE_EACH,
    PLAIN_RUNNING,
    WIDTH,
    Case,
    absolute,
    batches,
    each,
)
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

import torchlace as tl

STEPS = 12
COMPILED = [
    *(case for case in PLAIN_RUNNING if case.name not in ("total", "low-rank-total", "one-vs-one")),
    Case("total-newton-schulz", "total", {"method": "newton-schulz", "shrinkage": 0.9}),
    Case("one-vs-one-ledoit-wolf", "one-vs-one", {"shrinkage": "ledoit-wolf"}),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


def step(background, features, targets, signatures):
    """One training step, and scores."""
    background.observe(features, targets)
    if isinstance(background, tl.backgrounds.ClasswiseBackground):
        return background.cosines(features, signatures)
    return background.whiten(features)


def train(background, call, dtype=torch.float64):
    signatures = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(3)).to(dtype)
    stream = batches(STEPS, dtype=dtype)
    for start, (_, targets) in enumerate(stream):
        targets[8 + start % 4 :: 3] = -1  # those of samples that don't count
    return [call(background, x, y, signatures) for x, y in stream]


@each(COMPILED)
def test_compiled_moves_as_eager(case):
    eager = case.build(dtype=torch.float64)
    compiled = case.build(dtype=torch.float64)
    counter = CompileCounterWithBackend("aot_eager")
    outputs = train(compiled, torch.compile(step, fullgraph=True, backend=counter))
    for expected, output in zip(train(eager, step), outputs, strict=True):
        assert_close(output, expected)
    assert compiled.steps == eager.steps == STEPS
    assert_close(absolute(compiled.state_dict()), absolute(eager.state_dict()))
    assert counter.frame_count <= 2


def test_inductor_moves_as_eager():
    eager, compiled = (tl.backgrounds.Total(WIDTH) for _ in range(2))
    outputs = train(compiled, torch.compile(step, fullgraph=True), torch.float32)
    for expected, output in zip(train(eager, step, torch.float32), outputs, strict=True):
        assert_close(output, expected, rtol=1e-4, atol=1e-4)
    assert compiled.steps == STEPS


@each(ONE_EACH)
def test_compiles_for_any_batch_size(case):
    background, eager = case.build(dtype=torch.float64), case.build(dtype=torch.float64)
    observe = torch.compile(background.observe, fullgraph=True, backend="aot_eager", dynamic=True)
    for features, targets in batches(5, rows=None):
        observe(features, targets)
        eager.observe(features, targets)
    assert_close(background.precision, eager.precision)


@each(ONE_EACH)
def test_resumes_compiled_from_eager(case):
    stream = batches(STEPS)
    eager, resumed = (case.build(dtype=torch.float64) for _ in range(2))
    for features, targets in stream[:13]:
        eager.observe(features, targets)
    resumed.load_state_dict(eager.state_dict())
    observe = torch.compile(resumed.observe, fullgraph=True, backend="aot_eager")
    for features, targets in stream[13:]:
        eager.observe(features, targets)
        observe(features, targets)
    assert resumed.steps == STEPS
    assert_close(resumed.precision, eager.precision)


@each([case for case in LEARNED if not case.options])
def test_learned_compiles(case):
    background = case.build(dtype=torch.float64)
    expected = train(background, step)
    outputs = train(background, torch.compile(step, fullgraph=True, backend="aot_eager"))
    for one, other in zip(expected, outputs, strict=True):
        assert_close(other, one)
