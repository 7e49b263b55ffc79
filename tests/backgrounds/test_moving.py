"""The state that moves, tested moving, against running averages over all samples."""

import copy
from itertools import cycle, pairwise

import pytest
import torch
from backgrounds.cases import (
    CLASSES,
    DECAY,
    PLAIN_RUNNING,
    ROWS,
    RUNNING,
    WIDTH,
    batches,
    crossed,
    each,
)
from backgrounds.reference import expected, refreshed
from torch.testing import assert_close

import torchlace as tl

STEPS = 25


def assert_expected(background, history, *, rtol=1e-8):
    """The precision belongs to the last refresh, and so does the mean just after it."""
    seen = refreshed(history, background.refresh_every)
    mean, precision = expected(background, seen)
    # A trace of shrinkage keeps the low-rank core positive.
    rtol = max(rtol, 1e-4) if hasattr(background, "probe") else rtol
    if background.has_covariance:
        scale = precision.abs().max().item()
        assert_close(background.precision.double(), precision, rtol=rtol, atol=rtol * scale)
    if background.has_mean and len(seen) == len(history):
        assert_close(background.mean.double(), mean, rtol=rtol, atol=rtol)


@crossed("refresh_every", [10, 4])
def test_follows_the_running_average(case, refresh_every):
    background = case.build(decay=DECAY, refresh_every=refresh_every, dtype=torch.float64)
    history = []
    for features, targets in batches(STEPS, rows=None):
        history.append((features, targets))
        background.observe(features, targets)
        if len(history) % 4 == 1:
            assert_expected(background, history)
    assert background.steps == STEPS


@each(PLAIN_RUNNING)
def test_small_batches_are_remembered_longer(case):
    background = case.build(decay="auto", refresh_every=4, dtype=torch.float64)
    history, sizes = [], cycle((ROWS, 2, 1, ROWS, 0))
    for (features, targets), rows in zip(batches(STEPS), sizes, strict=False):
        history.append((features[:rows], targets[:rows]))
        background.observe(*history[-1])
        if len(history) % 4 == 1:
            assert_expected(background, history)
    assert len(history) == STEPS


@each(PLAIN_RUNNING)
def test_follows_in_fp32(case):
    background = case.build(decay=DECAY)
    history = batches(21, dtype=torch.float32)
    for features, targets in history:
        background.observe(features, targets)
    assert_expected(background, history, rtol=5e-3)


@each([case for case in RUNNING if case.name in ("total", "low-rank", "one-vs-one")])
def test_mean_moves_every_step(case):
    background = case.build(decay=DECAY, dtype=torch.float64, mean=True)
    history = []
    for features, targets in batches(STEPS):
        history.append((features, targets))
        background.observe(features, targets)
    mean, _ = expected(background, history)
    assert_close(background.mean, mean)


@each(RUNNING)
def test_whitening_waits_for_the_refresh(case):
    background = case.build(refresh_every=3, dtype=torch.float64)
    precisions = []
    for features, targets in batches(7):
        background.observe(features, targets)
        precisions.append(background.precision)
    for step, (before, after) in enumerate(pairwise(precisions), 1):
        moved = not torch.equal(before, after)
        assert moved == (background.has_covariance and step % 3 == 0)


@each(RUNNING)
def test_first_step_needs_no_correction(case):
    background = case.build(dtype=torch.float64)
    history = batches(1, rows=64)
    background.observe(*history[0])
    assert_expected(background, history)


@each(PLAIN_RUNNING)
def test_identity_before_any_step(case):
    background = case.build()
    assert background.steps == 0
    identity = torch.eye(WIDTH).expand_as(background.precision)
    assert_close(background.precision, identity, rtol=0, atol=0)
    assert_close(background.covariance, identity, rtol=0, atol=0)
    assert not background.mean.any()


@each(PLAIN_RUNNING)
def test_frozen_in_evaluation(case):
    background = case.build(refresh_every=1)
    stream = batches(6, dtype=torch.float32)
    for features, targets in stream[:3]:
        background.observe(features, targets)
    before = copy.deepcopy(background.state_dict())
    background.eval()
    for features, targets in stream[3:]:
        background.observe(features, targets)
        background.observe(features)
    after = background.state_dict()
    assert background.steps == 3
    assert all(torch.equal(before[key], after[key]) for key in before)


@crossed("at", [13, 7, 10])
def test_saved_and_restored_in_the_middle(case, at, tmp_path):
    stream = batches(STEPS, dtype=torch.float32)
    through = case.build(decay=DECAY)
    for features, targets in stream[:at]:
        through.observe(features, targets)
    torch.save(through.state_dict(), tmp_path / "state.pt")
    for features, targets in stream[at:]:
        through.observe(features, targets)

    resumed = case.build(decay=DECAY)
    resumed.observe(*batches(1, seed=9, dtype=torch.float32)[0])
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert resumed.steps == at
    for features, targets in stream[at:]:
        resumed.observe(features, targets)
    assert resumed.steps == STEPS
    for name, buffer in through.named_buffers():
        assert torch.equal(buffer, resumed.get_buffer(name)), name


@each(PLAIN_RUNNING)
def test_reset_forgets(case):
    background = case.build()
    for features, targets in batches(3, dtype=torch.float32):
        background.observe(features, targets)
    background.reset_parameters()
    fresh = case.build()
    assert background.steps == 0
    for name, buffer in fresh.named_buffers():
        if name != "probe":
            assert torch.equal(buffer, background.get_buffer(name)), name


@pytest.mark.parametrize("names", [("low-rank", "within"), ("low-rank-total", "total")])
def test_full_rank_sketch_is_the_shrunk_covariance(names):
    low, full = (tl.backgrounds.create(name, WIDTH, CLASSES, dtype=torch.float64) for name in names)
    for features, targets in batches(21):
        low.observe(features, targets)
        full.observe(features, targets)
    assert_close(low.precision, full.precision, rtol=1e-4, atol=1e-4)


@crossed("padding", [torch.nan, 0.0, 1e100])
def test_unlabelled_samples_do_not_count(case, padding):
    whole, known = (case.build(dtype=torch.float64, refresh_every=2) for _ in range(2))
    for features, targets in batches(5):
        hidden = torch.arange(len(targets)) % 3 == 0
        padded = torch.where(hidden[:, None], padding, features)
        whole.observe(padded, targets.masked_fill(hidden, -1))
        known.observe(features[~hidden], targets[~hidden])
        assert_close(whole.mean, known.mean)
        assert_close(whole.precision, known.precision)


@each(PLAIN_RUNNING)
def test_a_batch_without_labels_counts_as_an_empty_one(case):
    whole, empty = (case.build(dtype=torch.float64, refresh_every=2) for _ in range(2))
    for step, (features, targets) in enumerate(batches(5)):
        if step % 2 == 0:
            whole.observe(features, torch.full_like(targets, -1))
            empty.observe(features[:0], targets[:0])
        else:
            whole.observe(features, targets)
            empty.observe(features, targets)
        assert_close(whole.mean, empty.mean)
        assert_close(whole.precision, empty.precision)


@each([case for case in RUNNING if case.build().needs_targets])
def test_class_that_never_came(case):
    background = case.build(dtype=torch.float64)
    for features, targets in batches(5):
        background.observe(features, targets.clamp_max(CLASSES - 2))
    assert background.precision.isfinite().all()
    assert background.mean.isfinite().all()
