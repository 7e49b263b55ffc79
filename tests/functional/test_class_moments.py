"""The running moments of classes against all samples there were."""

import pytest
import torch
from functional.classes import draw
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlace.functional import empty_class_moments, signal, update_class_moments

WIDTH, DECAY = 4, 0.9


def slowly(history, classes):
    """Masses, squared weights, means and the covariance within, from every sample there was."""
    features, targets = (torch.cat(parts) for parts in zip(*history, strict=True))
    ages = [age for age, (_, y) in enumerate(reversed(history)) for _ in y][::-1]
    weights = DECAY ** torch.tensor(ages, dtype=torch.float64)
    masses, squares, means = [], [], []
    scatter = torch.zeros(features.shape[1], features.shape[1], dtype=torch.float64)
    for c in range(classes):
        w, x = weights[targets == c], features[targets == c]
        masses.append(w.sum())
        squares.append(w.square().sum())
        means.append(
            (w[:, None] * x).sum(0) / w.sum() if len(w) else torch.zeros_like(x[:1].sum(0))
        )
        scatter += (w[:, None] * (x - means[-1])).T @ (x - means[-1])
    return torch.stack(masses), torch.stack(squares), torch.stack(means), scatter / sum(masses)


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
    st.integers(2, 6),
    st.booleans(),
    st.integers(0, 1000),
)
def test_statistics_are_those_of_all_samples(sizes, classes, inplace, seed):
    """Classes that a batch lacks, that come once or never, and samples without a label."""
    moments, history = empty_class_moments(classes, WIDTH, dtype=torch.float64), []
    for number, size in enumerate(sizes):
        x, y = draw(size, classes, seed=seed + number)
        y[y == classes - 1] = -100
        x[y < 0] = torch.nan
        history.append((x[y >= 0], y[y >= 0]))
        moments = update_class_moments(
            moments, x, y, DECAY, rescale=number % 2 == 0, inplace=inplace
        )
    if not sum(len(y) for _, y in history):
        assert all((part == 0).all() for part in moments[:-1])
        return
    found = (*moments[:3], moments.within * moments.unit**2)
    for mine, expected in zip(found, slowly(history, classes), strict=True):
        torch.testing.assert_close(mine, expected)


def test_a_batch_that_is_not_finite_counts_for_nothing():
    x, y = draw(20, 3)
    moments = update_class_moments(empty_class_moments(3, WIDTH, dtype=torch.float64), x, y, DECAY)
    x[3, 1] = torch.inf
    after = update_class_moments(moments, x, y, DECAY)
    torch.testing.assert_close(after.mean, moments.mean)
    torch.testing.assert_close(after.within * after.unit**2, moments.within * moments.unit**2)


@pytest.mark.parametrize(
    ("classes", "batch", "width"), [(2, 64, 8), (100, 256, 8), (10_000, 256, 8)]
)
@pytest.mark.parametrize("spread", [1.0, 0.3])
def test_few_samples_of_a_class_bias_neither_covariance_nor_signal(classes, batch, width, spread):
    """At 10,000 classes in batches of 256 the statistics hold two and a half samples of each."""
    moments = empty_class_moments(classes, width, dtype=torch.float64)
    for step in range(400):
        x, y = draw(batch, classes, seed=step, spread=spread, width=width)
        moments = update_class_moments(moments, x, y, 0.99)
    found, square = signal(moments), moments.unit.item() ** 2
    within = found.within.trace().item() * square / width
    assert within == pytest.approx(1, abs=0.03)
    true = spread**2 * torch.randn(
        classes, width, generator=torch.Generator().manual_seed(99), dtype=torch.float64
    )
    true = true / spread
    shares = moments.mass / moments.mass.sum()
    between = (shares @ (true - shares @ true).square().sum(1)).item()
    got = found.between.item() * square * (classes - 1)
    # From little signal only what chance can't explain is told from noise.
    chance = width * (moments.squares / moments.mass.clamp_min(1e-300)).sum() / moments.mass.sum()
    assert got == pytest.approx(max(between, chance.item()), rel=0.1)


def test_signal_is_of_the_classes_that_came_even_if_once():
    moments = empty_class_moments(5, WIDTH, dtype=torch.float64)
    x = torch.randn(3, WIDTH, dtype=torch.float64)
    moments = update_class_moments(moments, x, torch.tensor([0, 2, 3]), DECAY)
    found = signal(moments)
    assert not found.within.any()
    scatter = (x - x.mean(0)).square().sum() / 3
    torch.testing.assert_close(found.between * moments.unit**2, (scatter / 2).expand(1))
