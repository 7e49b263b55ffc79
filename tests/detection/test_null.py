"""The null distributions: against integrals, limits and simulated backgrounds."""

import numpy as np
import pytest
from scipy import integrate, stats

from torchlace.detection import ace_false_alarm, ace_threshold, rx_threshold, smf_threshold

RUNS = 60_000
BANDS = 4
SAMPLES = 9
RATES = (0.2, 0.02, 0.002)


def simulate(centred, seed=0):
    """Statistics of a new and of a fitted pixel in many backgrounds, with explicit inverses."""
    rng = np.random.default_rng(seed)
    mixing, mean = rng.normal(size=(BANDS, BANDS)), 3 * rng.normal(size=BANDS)
    target = mean + 6 * rng.normal(size=BANDS) @ mixing
    background = rng.normal(size=(RUNS, SAMPLES, BANDS)) @ mixing + mean
    new = rng.normal(size=(RUNS, BANDS)) @ mixing + mean
    centre = background.mean(1)
    rest = background - centre[:, None]
    inverse = np.linalg.inv(rest.transpose(0, 2, 1) @ rest / (SAMPLES - 1))
    t = target - centre if centred else np.broadcast_to(target, centre.shape)

    def form(a, b):
        return np.einsum("ri,rij,rj->r", a, inverse, b)

    found = {}
    for name, y in (("new", new - centre), ("fitted", rest[:, 0])):
        found[name] = {
            "cosine": form(t, y) / np.sqrt(form(t, t) * form(y, y)),
            "filter": form(t, y) / np.sqrt(form(t, t)),
            "distance": form(y, y),
        }
    return found


def assert_share(exceeding, rate):
    # Five standard deviations of a count.
    assert abs(exceeding.mean() - rate) < 5 * np.sqrt(rate / RUNS)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("rate", RATES)
def test_simulated_backgrounds_exceed_the_thresholds_at_the_rate(fitted, rate):
    for_sizes = {"bands": BANDS, "samples": SAMPLES, "fitted": fitted}
    found = simulate(centred=False)["fitted" if fitted else "new"]
    assert_share(found["cosine"] ** 2 > ace_threshold(rate, **for_sizes), rate)
    assert_share(found["cosine"] > ace_threshold(rate, squared=False, **for_sizes), rate)
    assert_share(found["filter"] > smf_threshold(rate, **for_sizes), rate)
    assert_share(found["filter"] / 7 > smf_threshold(rate, length=7.0, **for_sizes), rate)
    assert_share(found["distance"] > rx_threshold(rate, **for_sizes), rate)


@pytest.mark.parametrize("rate", RATES)
def test_centring_the_target_changes_nothing_for_fitted_pixels_and_little_for_new_ones(rate):
    found = simulate(centred=True, seed=1)
    sizes = {"bands": BANDS, "samples": SAMPLES}
    fitted = found["fitted"]["cosine"]
    assert_share(fitted**2 > ace_threshold(rate, fitted=True, **sizes), rate)
    assert_share(fitted > ace_threshold(rate, fitted=True, squared=False, **sizes), rate)
    new = (found["new"]["cosine"] ** 2 > ace_threshold(rate, **sizes)).mean()
    assert 0.9 < new / rate < 1.1 + 5 / np.sqrt(rate * RUNS)


@pytest.mark.parametrize(("bands", "samples"), [(2, 3), (5, 12), (30, 40), (20, 100)])
@pytest.mark.parametrize("score", [0.1, 0.5, 0.9])
def test_the_chance_is_the_integral_over_the_loss(bands, samples, score):
    shape = ((bands - 1) / 2, (samples - bands + 1) / 2)

    def integrand(chance):
        kept = stats.beta.ppf(chance, *shape)
        dof = samples - bands
        return stats.f.sf(dof * kept * score / (1 - score), 1, dof)

    expected, _ = integrate.quad(integrand, 0, 1, epsabs=0, epsrel=1e-7, limit=500)
    assert ace_false_alarm(score, bands, samples) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize(("bands", "samples"), [(2, 5), (10, 11), (10, 100), (200, 300_000)])
@pytest.mark.parametrize("rate", [0.4, 1e-3, 1e-6])
def test_threshold_and_chance_are_inverse(rate, bands, samples, fitted, squared):
    threshold = ace_threshold(rate, bands, samples, fitted=fitted, squared=squared)
    assert 0 < threshold <= 1
    if threshold < 1 - 1e-6:
        found = ace_false_alarm(threshold, bands, samples, fitted=fitted, squared=squared)
        assert found == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize("rate", [0.1, 1e-4])
def test_with_many_samples_new_and_fitted_pixels_are_alike_and_gaussian(rate):
    bands, many = 20, 10**7
    for function, limit in (
        (ace_threshold, stats.beta.isf(rate, 0.5, (bands - 1) / 2)),
        (smf_threshold, stats.norm.isf(rate)),
        (rx_threshold, stats.chi2.isf(rate, bands)),
    ):
        for fitted in (True, False):
            found = function(rate, bands, many, fitted=fitted)
            assert found == pytest.approx(limit, rel=1e-5)


def test_scores_at_the_ends():
    assert ace_false_alarm([0.0, 1.0], 5, 20).tolist() == [pytest.approx(1.0), 0.0]
    signed = ace_false_alarm([-1.0, 0.0, 1.0], 5, 20, squared=False)
    assert signed.tolist() == [1.0, pytest.approx(0.5), 0.0]


@pytest.mark.parametrize("function", [ace_threshold, smf_threshold, rx_threshold])
def test_impossible_sizes_are_errors(function):
    with pytest.raises(ValueError, match="10 samples in 10 bands have no invertible covariance"):
        function(0.01, 10, 10)
    with pytest.raises(ValueError, match="false_alarm must lie in"):
        function(1.0, 10, 20)
    with pytest.raises(ValueError, match="bands must be at least 1"):
        function(0.1, 0, 20)


def test_one_band_has_a_filter_and_a_distance_but_no_angle():
    with pytest.raises(ValueError, match="two bands or more"):
        ace_threshold(0.1, 1, 20)
    # In one band the filter is Student's t.
    expected = stats.t.isf(0.01, 19) * np.sqrt(1 + 1 / 20)
    assert smf_threshold(0.01, 1, 20) == pytest.approx(expected, rel=1e-9)
    assert rx_threshold(0.02, 1, 20) == pytest.approx(expected**2, rel=1e-9)
