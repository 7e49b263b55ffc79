import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from torchlace.experiments import holm, mean_interval, paired_test
from torchlace.experiments.tables import deviation

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=8)


@given(VALUES, st.integers(0, 1000))
def test_the_paired_test_is_that_of_the_formula(values, seed):
    other = (values + np.random.default_rng(seed).normal(0.5, 1, len(values))).tolist()
    found = paired_test(values, other)
    differences = np.subtract(values, other)
    t = differences.mean() / (differences.std(ddof=1) / math.sqrt(len(values)))
    assert found.pairs == len(values)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), len(values) - 1), rel=1e-6, abs=1e-12)


def test_too_little_claims_nothing():
    assert paired_test([1.0], [2.0]) is None
    assert paired_test([], []) is None
    assert paired_test([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]) is None
    assert paired_test([1.0, 2.0], [1.0, 2.0]).p == 1
    with pytest.raises(ValueError, match="pairs need as many values: 2 against 1"):
        paired_test([1.0, 2.0], [1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """A hypothesis is rejected if every set that holds it is, each by Bonferroni."""
    corrected = holm(p_values)
    order = np.argsort(p_values, kind="stable")
    for place, p in enumerate(p_values):
        rank = list(order).index(place)
        closed = max(min(1.0, (len(p_values) - k) * p_values[order[k]]) for k in range(rank + 1))
        assert corrected[place] == pytest.approx(closed)
        assert p <= corrected[place] <= 1


def test_holm_on_a_known_example():
    # Holm (1979) as in the documentation of R's p.adjust.
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([]) == []


@given(VALUES)
def test_the_deviation_is_that_of_a_sample(values):
    assert deviation(values) == pytest.approx(np.asarray(values).std(ddof=1))


@pytest.mark.parametrize("kind", ["right", "seeds", "difference"])
def test_intervals_agree_with_scipys_bootstrap_over_images(kind):
    random = np.random.default_rng(3)
    right = random.random((3, 2000)) < 0.9
    scores = {
        "right": right[0].astype(float),
        "seeds": right.mean(axis=0),
        "difference": right[0].astype(float) - right[1],
    }[kind]
    low, high = mean_interval(scores)
    expected = stats.bootstrap(
        (scores,), np.mean, n_resamples=4000, method="percentile", rng=1
    ).confidence_interval
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.05 * width)
    assert high == pytest.approx(expected.high, abs=0.05 * width)


def test_intervals_are_the_same_every_time_and_for_every_order():
    scores = np.random.default_rng(0).random(40)
    assert mean_interval(scores) == mean_interval(scores[::-1])
    assert mean_interval(scores) != mean_interval(scores, seed=1)
    narrow, wide = mean_interval(scores, level=0.5), mean_interval(scores)
    assert wide[0] < narrow[0] < scores.mean() < narrow[1] < wide[1]
    assert mean_interval([1, 1, 1]) == (1, 1)
    with pytest.raises(ValueError, match="at least one score"):
        mean_interval([])
