"""Running moments against the weighted moments of all samples seen, in fp64."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf_shrinkage
from torch.testing import assert_close

from torchlace.functional import empty_moments, ledoit_wolf, update_moments
from torchlace.functional.geometry import negligible

D = 4


def stream(sizes, groups=1, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mix = normal(D, D)
    return [
        (normal(n, D) @ mix + 0.3 * step, torch.rand(groups, n, generator=generator).double())
        for step, n in enumerate(sizes)
    ]


def masses_and_moments(batches, decay):
    """Mass, mean and covariance of every group, one sample at a time, later batches fading it."""
    groups = len(batches[0][1])
    masses = torch.zeros(groups).double()
    means, covariances = torch.zeros(groups, D).double(), torch.zeros(groups, D, D).double()
    for g in range(groups):
        pairs, left = [], 1.0
        for features, weights in reversed(batches):
            pairs += [(left * w, x) for w, x in zip(weights[g], features, strict=True)]
            count = weights[g].sum().item()
            left *= max(0.99, 1 - count / (50 * D)) if decay == "auto" else decay
        masses[g] = mass = sum(w for w, _ in pairs)
        means[g] = sum(w * x for w, x in pairs) / mass
        covariances[g] = sum(w * torch.outer(x - means[g], x - means[g]) for w, x in pairs) / mass
    return masses, means, covariances


def naive(batches, decay):
    return masses_and_moments(batches, decay)[1:]


def run(batches, decay, dtype=torch.float64):
    moments = empty_moments(len(batches[0][1]), D, dtype=dtype)
    for features, weights in batches:
        moments = update_moments(moments, features.to(dtype), weights.to(dtype), decay)
    return moments


def covariance(moments):
    return moments.covariance.double() * moments.unit.double() ** 2


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99, "auto"])
@pytest.mark.parametrize("sizes", [[8], [8] * 6, [5, 1, 9, 0, 2, 7]], ids=["one", "even", "uneven"])
def test_exact_over_all_samples(sizes, decay, groups):
    batches = stream(sizes, groups)
    moments = run(batches, decay)
    masses, means, covariances = masses_and_moments(batches, decay)
    assert_close(moments.mean, means)
    assert_close(covariance(moments), covariances)
    assert_close(moments.mass, masses)


def test_no_weights_are_ones():
    features = stream([9])[0][0]
    empty = empty_moments(1, D, dtype=torch.float64)
    one = update_moments(empty, features, None, 0.9)
    other = update_moments(empty, features, torch.ones(1, 9).double(), 0.9)
    for first, second in zip(one, other, strict=True):
        assert_close(first, second)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.floats(0, 0.99), st.integers(0, 999))
def test_order_inside_a_batch_and_shifts_do_not_matter(sizes, decay, seed):
    batches = stream([*sizes, 3], seed=seed)
    moved = [(x.flip(0) + 5, w.flip(1)) for x, w in batches]
    plain, other = run(batches, decay), run(moved, decay)
    assert_close(other.mean, plain.mean + 5)
    assert_close(covariance(other), covariance(plain))
    values = torch.linalg.eigvalsh(covariance(plain))
    assert values.min() >= -1e-9 * values.max()


@pytest.mark.parametrize("size", [1e-18, 1e-9, 1.0, 1e9, 1e18])
def test_fp32_at_any_magnitude(size):
    batches = stream([16] * 5)
    moments = run([(x * size, w) for x, w in batches], 0.9, torch.float32)
    means, covariances = naive(batches, 0.9)
    assert_close(moments.mean.double() / size, means, rtol=1e-4, atol=1e-5)
    assert_close(covariance(moments) / size**2, covariances, rtol=1e-3, atol=1e-4)


def test_magnitude_may_change():
    batches = stream([16] * 300)
    batches = [(x * (1e20 if step == 0 else 1e-3), w) for step, (x, w) in enumerate(batches)]
    moments = run(batches, 0.5, torch.float32)
    means, covariances = naive(batches[-60:], 0.5)
    assert_close(moments.mean.double(), means, rtol=1e-3, atol=1e-7)
    assert_close(covariance(moments), covariances, rtol=1e-2, atol=1e-8)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_unit_need_not_follow_every_batch(groups):
    batches = [(x * (1 + step), w) for step, (x, w) in enumerate(stream([8] * 9, groups))]
    moments = run(batches[:1], 0.9)
    for features, weights in batches[1:]:
        unit = moments.unit.item()
        moments = update_moments(moments, features, weights, 0.9, rescale=False)
        assert moments.unit.item() == unit
    always = run(batches, 0.9)
    assert always.unit.item() != unit
    assert_close(moments.mean, naive(batches, 0.9)[0])
    assert_close(covariance(moments), naive(batches, 0.9)[1])
    for part, power in (("third", 3), ("fourth", 4)):
        ratio = always.unit / moments.unit
        assert_close(getattr(moments, part), getattr(always, part) * ratio**power)


def test_a_batch_far_beyond_the_unit_waits_for_it():
    (features, weights), (more, others) = ((x.float(), w.float()) for x, w in stream([16, 16]))
    known = update_moments(empty_moments(1, D), features, weights, 0.9)
    far = 1e12 * more
    still = update_moments(known, far, others, 0.9, rescale=False)
    assert_close(still.mean, known.mean)
    assert_close(still.covariance, known.covariance)
    moved = update_moments(known, far, others, 0.9)
    assert moved.mean.abs().max() > 1e10
    assert moved.covariance.isfinite().all()


@pytest.mark.parametrize("rescale", [True, False])
def test_zeros_leave_the_unit_at_one(rescale):
    moments = empty_moments(1, D)
    for _ in range(3):
        moments = update_moments(moments, torch.zeros(4, D), None, 0.9, rescale=rescale)
    assert moments.unit == 1
    assert moments.mass > 0
    assert not any(part.any() for part in (moments.mean, moments.covariance, moments.fourth))


@pytest.mark.parametrize("first", [1.0, 1e-20])
def test_the_unit_stays_where_the_samples_count_as_zero(first):
    moments = empty_moments(1, D)
    for x, _ in stream([8, 8]):
        moments = update_moments(moments, first * x.float(), None, 0.9)
    for x, _ in stream([8] * 20):
        moments = update_moments(moments, 1e-43 * x.float(), None, 0.5)
        assert moments.unit >= negligible(torch.float32)
        assert all(part.isfinite().all() for part in moments)


def test_the_unit_follows_the_samples_after_nothing():
    batches = [(x * 1e-20, w) for x, w in stream([0, 16])]
    moments = run(batches, 0.9, torch.float32)
    assert 1e-3 < moments.covariance.abs().max() < 10


# The last two are finite themselves; sums of them might not be.
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf, 1e308, -1e308])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_batch_that_is_not_finite_is_left_out(value, groups):
    batches = stream([8] * 4, groups)
    bad = [(x.clone(), w) for x, w in batches]
    bad[2][0][5, 1] = value
    moments = run(bad, 0.9)
    nothing = torch.zeros(0, D).double(), torch.zeros(groups, 0).double()
    means, covariances = naive([*batches[:2], nothing, batches[3]], 0.9)
    assert_close(moments.mean, means)
    assert_close(covariance(moments), covariances)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64], ids=str)
def test_samples_of_weight_zero_may_hold_anything(dtype):
    features = stream([8])[0][0]
    weights = (torch.arange(8) < 6).to(dtype)[None]
    expected = run([(features[:6], torch.ones(1, 6))], 0.9)
    features[6], features[7] = torch.nan, 1e9
    found = update_moments(empty_moments(1, D, dtype=torch.float64), features, weights, 0.9)
    assert_close(found.mean, expected.mean)
    assert_close(covariance(found), covariance(expected))


def test_a_group_without_samples_stays_empty():
    features = stream([8])[0][0]
    weights = torch.stack([torch.ones(8), torch.zeros(8)]).double()
    moments = run([(features, weights)], 0.9)
    assert moments.mass.tolist() == [8, 0]
    assert not moments.mean[1].any()
    assert not moments.covariance[1].any()


def test_sums_over_processes_make_one_batch():
    features, weights = stream([10], groups=2)[0]
    empty = empty_moments(2, D, dtype=torch.float64)
    parts = [(features[:3], weights[:, :3]), (features[3:], weights[:, 3:])]
    slots, barrier = {}, Barrier(2)

    def work(rank):
        def exchange(tensor):
            slots[rank] = tensor
            barrier.wait()
            total = slots[0] + slots[1]
            barrier.wait()
            return total

        return update_moments(empty, *parts[rank], 0.9, exchange)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(work, range(2)))
    whole = update_moments(empty, features, weights, 0.9)
    for moments in found:
        assert_close(moments.mean, whole.mean)
        assert_close(covariance(moments), covariance(whole))
        assert_close(moments.spread, whole.spread)


@pytest.mark.parametrize("rows", [3, 10, 200])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e5])
def test_ledoit_wolf_equals_scikit_learn(rows, size):
    features = stream([rows])[0][0] * size
    moments = update_moments(empty_moments(1, D, dtype=torch.float64), features, None, 0.9)
    found = ledoit_wolf(moments.covariance, moments.fourth, moments.spread)
    assert found.item() == pytest.approx(ledoit_wolf_shrinkage(features.numpy()))


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_ledoit_wolf_of_many_batches_equals_scikit_learn_of_all(rows):
    batches = [x for x, _ in stream([rows] * (64 // rows))]
    moments = empty_moments(1, D, dtype=torch.float64)
    for features in batches:
        moments = update_moments(moments, features, None, 1 - 1e-12)
    found = ledoit_wolf(moments.covariance, moments.fourth, moments.spread)
    expected = ledoit_wolf_shrinkage(torch.cat(batches).numpy())
    assert found.item() == pytest.approx(expected, rel=1e-6)
