"""The background within classes: its ridge, and what it promises."""

from functools import partial

import pytest
import torch
from functional.classes import draw
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

import torchlace as tl
from torchlace.backgrounds import Within
from torchlace.functional import signal

WIDTH = 4


@settings(max_examples=40)
@given(
    st.integers(2, 8), st.integers(1, 40), st.floats(0.01, 1), st.floats(0, 5), st.integers(0, 99)
)
def test_noise_over_signal_is_bounded(classes, each, ridge, spread, seed):
    """docs/backgrounds.md: at most 1 + λ_max(Σ_W) / (ρ·β) times what it was before."""
    x, y = draw(each * classes, classes, seed=seed, spread=spread)
    background = Within(WIDTH, classes, ridge=ridge, dtype=torch.float64)
    background.observe(x, y)
    within, between = signal(background.moments)
    seen = y.unique()
    if len(seen) < 2:
        return
    means = torch.stack([x[y == c].mean(0) for c in seen])
    shares = torch.stack([(y == c).double().mean() for c in seen])
    offsets = means - shares @ means
    scatter = (shares[:, None] * offsets).T @ offsets
    unit = background.moments.unit.item() ** 2
    noise, factor = within * unit, background.whitening
    before = noise.trace() / scatter.trace()
    after = (factor @ noise @ factor.T).trace() / (factor @ scatter @ factor.T).trace()
    largest = torch.linalg.eigvalsh(noise)[-1]
    assert after <= before * (1 + largest / (ridge * between * unit)) * (1 + 1e-9)


def test_where_classes_have_collapsed_nothing_is_whitened():
    means = torch.randn(5, WIDTH, dtype=torch.float64)
    targets = torch.arange(50) % 5
    background = Within(WIDTH, 5, dtype=torch.float64)
    background.observe(means[targets], targets)
    factor = background.whitening / background.whitening[0, 0]
    torch.testing.assert_close(factor, torch.eye(WIDTH, dtype=torch.float64))


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        (torch.ones(6, WIDTH), torch.arange(6) % 2),  # constant
        (torch.randn(6, WIDTH), torch.zeros(6, dtype=torch.int64)),  # one class
        (torch.randn(6, WIDTH), torch.full((6,), -100)),  # nothing that counts
        (torch.randn(0, WIDTH), torch.zeros(0, dtype=torch.int64)),
        (torch.randn(1, WIDTH), torch.zeros(1, dtype=torch.int64)),
    ],
)
def test_without_a_signal_no_direction_is_lifted_above_another(features, targets):
    background = Within(WIDTH, 2)
    background.observe(features, targets)
    assert torch.isfinite(background.whitening).all()
    factor = background.whitening / background.whitening[0, 0]
    torch.testing.assert_close(factor, torch.eye(WIDTH))


def test_every_class_seen_once_is_all_signal():
    background = Within(WIDTH, 3, dtype=torch.float64)
    background.observe(torch.randn(3, WIDTH, dtype=torch.float64), torch.arange(3))
    factor = background.whitening / background.whitening[0, 0]
    torch.testing.assert_close(factor, torch.eye(WIDTH, dtype=torch.float64))


def test_anchors_are_a_unit_long_in_the_root_mean_square():
    x, y = draw(60, 3)
    background = Within(WIDTH, 4, dtype=torch.float64)  # a class of them is never seen
    background.observe(x, y)
    squares = background.class_anchors.square().sum(1)
    assert squares[3] == 0
    torch.testing.assert_close(squares[:3].mean(), squares.new_tensor(1.0))


def test_variances_far_below_one_are_whitened_as_those_above():
    """Of one class alone, where nothing is known of a signal."""
    x = torch.randn(50, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = []
    for size in (1e-3, 1e3):
        background = Within(WIDTH, 2, dtype=torch.float64)
        background.observe(size * x, torch.zeros(50, dtype=torch.int64))
        found.append(background.whitening * size)
        variance = background.eval()(size * x).var(0).mean()
        torch.testing.assert_close(variance, variance.new_tensor(1.0))
    torch.testing.assert_close(*found)


def test_rare_classes_count_by_their_samples():
    """A hundred samples of one class and two of another: the second hardly moves Σ_W."""
    x, y = draw(400, 2, spread=3.0)
    rare = torch.cat([(y == 0).nonzero()[:100], (y == 1).nonzero()[:2]]).flatten()
    background = Within(WIDTH, 2, dtype=torch.float64)
    background.observe(x[rare], y[rare])
    within = signal(background.moments).within * background.moments.unit**2
    own = torch.cov(x[rare][:100].T)
    assert torch.linalg.matrix_norm(within - own) < 0.1 * torch.linalg.matrix_norm(own)


def test_a_million_classes_need_memory_for_their_means_only():
    background = Within(2, 1_000_000)
    background.observe(torch.randn(8, 2), torch.arange(8) * 100_000)
    numbers = sum(buffer.numel() for buffer in background.buffers())
    assert numbers < 6_000_100  # the means once more where they lie in the whitened space
    assert torch.isfinite(background.whitening).all()


def test_options_that_can_not_be_are_named():
    with pytest.raises(ValueError, match="ridge must lie in"):
        Within(2, 2, ridge=0)
    with pytest.raises(ValueError, match="num_classes"):
        Within(2, 1)
    with pytest.raises(ValueError, match="unknown method 'svd'"):
        Within(2, 2, method="svd")


def test_it_learns_what_a_linear_layer_learns_where_whitening_all_does_not():
    """Thirty features of breast_cancer, thirty epochs of Adam, as benchmarks/fixed_features.py."""
    x, y = load_breast_cancer(return_X_y=True)
    x = torch.tensor((x - x.mean(0)) / x.std(0), dtype=torch.float32)
    y = torch.tensor(y)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    train, test = order[:400], order[400:]
    right = {}
    for name, make in {
        "linear": tl.Softmax,
        "total": partial(tl.LACE, background="total", scale="adacos", bias=False),
        "within": tl.LACE,
    }.items():
        torch.manual_seed(0)
        head = make(30, 2)
        optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
        for _ in range(30):
            for chosen in train[torch.randperm(len(train))].split(50):
                optimizer.zero_grad()
                head.loss(x[chosen], y[chosen]).backward()
                optimizer.step()
        right[name] = (head.eval().predict(x[test]) == y[test]).double().mean().item()
    assert right["within"] > right["linear"] - 0.02
    assert right["within"] > right["total"] + 0.02
