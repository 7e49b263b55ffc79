"""A limit on the dimensions that are whitened: found by refreshes, kept, and felt by a head."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import torchlace as tl
from torchlace.backgrounds import Estimated


def spectrum(background):
    """The eigenvalues of the covariance that was estimated, in fp64."""
    return torch.linalg.eigvalsh(background.running_covariance[0].double()).clamp_min(0)


def used(background):
    """Dimensions that are whitened, from their definition."""
    values, amount = spectrum(background), background.amount.item()
    kept = (1 - amount) * values
    return (kept / (kept + amount * values.mean())).sum().item()


@settings(deadline=None, max_examples=40)
@given(
    width=st.integers(2, 24),
    dimensions=st.integers(1, 24),
    steepness=st.floats(0, 6),
    size=st.sampled_from([1e-12, 1.0, 1e12]),
    method=st.sampled_from(["cholesky", "newton-schulz"]),
    seed=st.integers(0, 99),
)
def test_the_limit_is_met_or_the_least_shrinkage(width, dimensions, steepness, size, method, seed):
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=generator)
    mix *= size * torch.logspace(0, -steepness, width)
    features = torch.randn(4 * width, width, generator=generator) @ mix.T
    background = Estimated(width, dimensions=dimensions, method=method)
    background.observe(features)
    amounts = []
    for _ in range(400):
        background.refresh()
        amounts.append(background.amount.item())
    rising = all(a <= b * (1 + 1e-5) for a, b in pairwise(amounts))
    falling = all(a >= b * (1 - 1e-5) for a, b in pairwise(amounts))
    assert rising or falling  # it never overshoots
    if amounts[-1] <= 0.01 * (1 + 1e-6):
        assert used(background) <= dimensions * 1.01
    elif amounts[-1] < 0.998:
        assert used(background) == pytest.approx(dimensions, rel=0.01)


def test_the_whitening_is_that_of_the_shrunk_covariance():
    background = Estimated(8, dimensions=3, dtype=torch.float64)
    features = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).double()
    background.observe(features)
    for _ in range(100):
        background.refresh()
    covariance = features.T.cov(correction=0)
    amount = background.amount.item()
    assert 0.5 < amount < 0.999
    shrunk = (1 - amount) * covariance + amount * covariance.trace() / 8 * torch.eye(8)
    assert_close(background.covariance, shrunk)


def test_classes_means_as_many_as_tell_them_apart():
    for classes, dimensions in ((2, 1), (10, 9)):
        head = tl.LACE(16, classes, background_options={"dimensions": "classes"})
        assert head.background.dimensions == dimensions
        assert f"dimensions={dimensions}" in repr(head)


def test_states_without_a_limit_stay_as_they_were():
    plain, limited = Estimated(4), Estimated(4, dimensions=2)
    assert set(limited.state_dict()) - set(plain.state_dict()) == {"amount"}
    with pytest.raises(RuntimeError, match="amount"):
        limited.load_state_dict(plain.state_dict())


def test_noise_in_many_dimensions_no_longer_hides_the_classes():
    """Two classes apart in one dimension of 64: whitened in all, cosines to class means vanish."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(512) % 2
    features = 0.3 * torch.randn(512, 64, generator=generator)
    features[:, 0] += 2.0 * targets - 1
    found = {}
    for name, options in {"all": {}, "one": {"dimensions": "classes"}}.items():
        background = tl.backgrounds.create("estimated", 64, 2, **options)
        for _ in range(101):
            background.observe(features, targets)
        vectors = tl.functional.unit(background.whiten(features))
        means = tl.functional.unit(torch.stack([vectors[targets == c].mean(0) for c in (0, 1)]))
        found[name] = (vectors * means[targets]).sum(1).mean().item()
    assert found["all"] < 0.3
    assert found["one"] > 2 * found["all"]
