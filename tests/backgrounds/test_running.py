"""What all estimated backgrounds share: the clock, bad batches, types and transforms."""

import copy
import warnings

import pytest
import torch
from backgrounds.cases import PLAIN_RUNNING, WIDTH, batches, crossed, each
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close

import torchlace as tl
from torchlace.backgrounds import advance, refreshing
from torchlace.functional import unit


def learn(background, stream):
    for features, targets in stream:
        background.observe(features, targets)
    return background


def buffers(background):
    return {name: value.clone() for name, value in background.named_buffers()}


def assert_same(background, state):
    for name, value in background.named_buffers():
        assert torch.equal(value, state[name]), name


def assert_reads_as(background, other):
    assert_close(background.mean, other.mean)
    assert_close(background.precision, other.precision)


@each(PLAIN_RUNNING)
def test_refreshing_forces_or_forbids(case):
    stream = batches(4)
    always = learn(case.build(dtype=torch.float64, refresh_every=1), stream)
    forced, never = case.build(dtype=torch.float64), case.build(dtype=torch.float64)
    with refreshing(torch.nn.ModuleList([forced]), True):
        learn(forced, stream)
    with refreshing(never, False):
        learn(never, stream)
    assert_close(forced.precision, always.precision)
    assert_close(never.precision, case.build(dtype=torch.float64).precision)
    assert forced.steps == never.steps == len(stream)
    never.refresh()
    assert_close(never.precision, always.precision)


def test_refreshing_ends_with_its_block():
    background = tl.backgrounds.Total(WIDTH)
    with pytest.raises(RuntimeError), refreshing(background, False):
        raise RuntimeError
    learn(background, batches(1))
    assert not torch.equal(background.whitening, torch.eye(WIDTH))


def test_refreshing_nests():
    background = tl.backgrounds.Total(WIDTH)
    with refreshing(background, False):
        with refreshing(background, False):
            pass
        learn(background, batches(1))
    assert torch.equal(background.whitening, torch.eye(WIDTH))


@each(PLAIN_RUNNING)
def test_advance_counts_steps_replayed(case):
    background = learn(case.build(refresh_every=10), batches(1))
    advance(torch.nn.Sequential(torch.nn.Identity(), background), 8)
    before = background.precision
    assert background.steps == 9
    learn(background, batches(1, seed=1))
    assert torch.equal(background.precision, before)
    learn(background, batches(1, seed=2))
    assert not torch.equal(background.precision, before)


@crossed("value", [torch.nan, torch.inf])
def test_bad_batch_leaves_the_statistics(case, value):
    background = learn(case.build(refresh_every=1, dtype=torch.float64), batches(3))
    before = copy.deepcopy(background)
    features, targets = batches(1, seed=3)[0]
    features[2, 1] = value
    background.observe(features, targets)
    if hasattr(before, "amount"):
        before.refresh()  # a refresh there was, and a limit of dimensions comes nearer by it
    assert_reads_as(background, before)
    assert background.steps == 4


@each(PLAIN_RUNNING)
def test_bad_batch_counts_as_an_empty_one(case):
    bad, empty = (learn(case.build(decay=0.5, dtype=torch.float64), batches(3)) for _ in range(2))
    features, targets = batches(1, seed=3)[0]
    bad.observe(features * torch.nan, targets)
    empty.observe(features[:0], targets[:0])
    for background in (bad, empty):
        learn(background, batches(2, seed=4)).refresh()
    assert_reads_as(bad, empty)


def test_bad_batch_passes_through_a_head_without_checks():
    head = tl.LACE(WIDTH, 4)
    head.loss(*batches(1, dtype=torch.float32)[0])
    before = copy.deepcopy(head.background)
    features, targets = batches(1, seed=3, dtype=torch.float32)[0]
    features[0, 0] = torch.nan
    with tl.checks(False):
        head.loss(features, targets)
    assert_reads_as(head.background, before)


@each(PLAIN_RUNNING)
def test_bad_first_batch_leaves_the_identity(case):
    background, fresh = case.build(), case.build()
    features, targets = batches(1, dtype=torch.float32)[0]
    background.observe(features * torch.nan, targets)
    assert_close(background.precision, fresh.precision)
    assert_close(background.mean, fresh.mean)


@pytest.mark.parametrize("rate", [0.1, 10.0])
@each(PLAIN_RUNNING)
def test_features_may_shrink_and_grow_between_refreshes(case, rate):
    """By 1e18 in 18 steps; a unit that stood still would lose them."""
    single, double = case.build(refresh_every=4), case.build(refresh_every=4, dtype=torch.float64)
    for step, (features, targets) in enumerate(batches(18)):
        features = features * rate**step
        double.observe(features, targets)
        single.observe(features.float(), targets)
    single.refresh()
    double.refresh()
    assert_close(single.mean.double(), double.mean, rtol=1e-3, atol=1e-3 * rate**17)
    size = rate**17
    probe = batches(1, seed=4)[0][0] * size
    if isinstance(single, tl.backgrounds.ClasswiseBackground):
        signs = torch.eye(WIDTH, dtype=torch.float64)[:4]
        found = single.cosines(probe.float(), signs.float()), double.cosines(probe, signs)
    else:
        found = tuple(unit(b.whiten(p)) for b, p in ((single, probe.float()), (double, probe)))
    assert_close(found[0].double(), found[1], rtol=0, atol=2e-2)


@pytest.mark.parametrize("size", [1e-20, 1e18])
@each(PLAIN_RUNNING)
def test_empty_batch_teaches_nothing(case, size):
    plain, empty = case.build(), case.build()
    features, targets = batches(1, dtype=torch.float32)[0]
    empty.observe(features[:0], targets[:0])
    for background in (plain, empty):
        background.observe(features * size, targets)
        background.observe(features[:0], targets[:0])
        background.refresh()
    probe = batches(1, seed=4, dtype=torch.float32)[0][0] * size
    if isinstance(plain, tl.backgrounds.ClasswiseBackground):
        compare = [b.cosines(probe, torch.eye(WIDTH)[:4]) for b in (plain, empty)]
    else:
        compare = [b.whiten(probe) for b in (plain, empty)]
    assert_close(*compare, rtol=1e-3, atol=1e-3)


@each([case for case in PLAIN_RUNNING if case.build().needs_targets])
def test_labels_are_asked_for_in_training_only(case):
    background = case.build()
    features, targets = batches(1, dtype=torch.float32)[0]
    with pytest.raises(ValueError, match=r"learns from labels.*observe\(features, targets\)"):
        background.observe(
            features
        )  # gradients would go by a whitening that nothing was learned of
    with torch.no_grad(), pytest.warns(UserWarning, match="learns from labels"):
        background.observe(features)
    background.observe(features, targets)
    before = {name: buffer.clone() for name, buffer in background.named_buffers()}
    with pytest.warns(UserWarning, match=r"learns from labels.*\.eval\(\)"):
        background.observe(features)
    assert_same(background, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        background.eval().observe(features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@each(PLAIN_RUNNING)
def test_statistics_stay_in_fp32(case, dtype):
    stream = [(x.to(dtype), y) for x, y in batches(12, dtype=torch.float32)]
    background = learn(learn(case.build(), stream[:6]).to(dtype), stream[6:])
    through = learn(case.build(), stream)
    assert {buffer.dtype for buffer in background.buffers()} == {torch.float32}
    assert_same(background, buffers(through))
    assert {buffer.dtype for buffer in case.build(dtype=dtype).buffers()} == {torch.float32}


@each(PLAIN_RUNNING)
def test_autocast_learns_in_fp32(case):
    background, plain = case.build(), case.build()
    stream = batches(3, dtype=torch.float32)
    learn(plain, stream)
    with torch.autocast("cpu", torch.bfloat16):
        for features, targets in stream:
            train_step(background, features, targets)
    assert_same(background, buffers(plain))


def train_step(background, features, targets):
    if isinstance(background, tl.backgrounds.ClasswiseBackground):
        return tl.LACE(WIDTH, 4, background=background).loss(features, targets)
    return background(features, targets)


@each(PLAIN_RUNNING)
def test_vmap_over_stacked_states(case):
    models = [case.build(dtype=torch.float64) for _ in range(3)]
    streams = [batches(4, seed=seed) for seed in range(3)]
    shared = case.build(dtype=torch.float64)
    _, state = stack_module_state(models)
    if "probe" in state:
        state["probe"] = state["probe"][:1].repeat(3, 1, 1)

    def observe(state, features, targets):
        inner = {f"inner.{name}": value for name, value in state.items()}
        functional_call(Observe(shared), inner, (features, targets))
        return state

    for batch in zip(*streams, strict=True):
        features, targets = (torch.stack(part) for part in zip(*batch, strict=True))
        state = vmap(observe)(state, features, targets)
    for index, stream in enumerate(streams):
        alone = learn(copy.deepcopy(models[0]), stream)
        for name, value in alone.named_buffers():
            assert_close(state[name][index], value)


class Observe(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, features, targets):
        self.inner.observe(features, targets)
        return features


@each(PLAIN_RUNNING)
def test_no_gradient_through_the_statistics(case):
    background = case.build(refresh_every=1)
    features, targets = batches(1, dtype=torch.float32)[0]
    background.observe(features.requires_grad_(), targets)
    assert not any(buffer.requires_grad for buffer in background.buffers())
    assert features.grad is None


def test_pairs_of_copies_do_not_share_a_clock():
    first = tl.backgrounds.Total(WIDTH)
    second = copy.deepcopy(first)
    learn(first, batches(2))
    assert (first.steps, second.steps) == (2, 0)


@each(PLAIN_RUNNING)
def test_features_that_the_whitening_would_make_infinite_are_refused(case):
    background = case.build(refresh_every=1)
    features, targets = batches(1, dtype=torch.float32)[0]
    background.observe(1e-20 * features, targets)
    background.check_scale(features)
    with pytest.raises(ValueError, match=r"lie up to .* would whiten that to .*, so much smaller"):
        background.check_scale(1e30 * features)
