"""A limit by the cosines between samples of a class: measured, followed, and felt by a head."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import torchlace as tl
from torchlace.backgrounds import Estimated


def blobs(noise, width=16, classes=4, each=64, seed=0):
    """Classes that differ in ``classes`` dimensions, with noise in all."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(classes * each) % classes
    features = noise * torch.randn(len(targets), width, generator=generator)
    features[torch.arange(len(targets)), targets] += 1
    return features, targets


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(0, 12),
    classes=st.integers(2, 5),
    scale=st.sampled_from([1e-12, 1.0, 1e12]),
    seed=st.integers(0, 99),
)
def test_what_is_followed_is_the_mean_cosine_of_two_samples_of_a_class(size, classes, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    features = scale * torch.randn(size, 3, generator=generator, dtype=torch.float64)
    targets = torch.randint(-1, classes, (size,), generator=generator)
    background = Estimated(3, cohesion=0.5, num_classes=classes, dtype=torch.float64)
    background.observe(features, targets)
    before = tl.backgrounds.create("estimated", 3, classes, covariance=False, dtype=torch.float64)
    before.observe(features, targets)  # not whitened yet: the first batch is compared as it is
    vectors = tl.functional.unit(before.whiten(features))
    pairs = [
        (i, j)
        for i in range(size)
        for j in range(size)
        if i != j and targets[i] == targets[j] and targets[i] >= 0
    ]
    total = sum((vectors[i] @ vectors[j]).item() for i, j in pairs)
    expected = torch.tensor([total, len(pairs)], dtype=torch.float64)
    assert_close(background.cosines / 0.01, expected, atol=1e-9, rtol=1e-9)


def test_classes_that_stay_together_are_whitened_all_the_way():
    background = Estimated(16, cohesion=0.75, num_classes=4, refresh_every=1)
    for step in range(120):
        background.observe(*blobs(0.003, seed=step))
    assert background.amount.item() == pytest.approx(0.01)


def test_classes_that_fall_apart_are_not():
    background = Estimated(16, cohesion=0.75, num_classes=4, refresh_every=1)
    for step in range(120):
        background.observe(*blobs(1.0, seed=step))
    assert background.amount.item() == pytest.approx(0.999)
    # The next to nothing that is left of the whitening is that of the covariance shrunk so much.
    features = background.whiten(blobs(1.0)[0])
    raw = blobs(1.0)[0] - background.mean
    assert_close(tl.functional.unit(features), tl.functional.unit(raw), atol=5e-3, rtol=0)


def test_in_between_the_cosine_asked_for_is_reached():
    background = Estimated(64, cohesion=0.5, num_classes=4, refresh_every=1, decay=0.9)
    for step in range(400):
        background.observe(*blobs(0.05, width=64, seed=step))
    cosines, pairs = background.cosines
    assert 0.011 < background.amount.item() < 0.99
    assert (cosines / pairs).item() == pytest.approx(0.5, abs=0.02)


def test_without_two_samples_of_a_class_nothing_follows():
    background = Estimated(3, cohesion=0.5, num_classes=4, refresh_every=1)
    for step in range(5):
        generator = torch.Generator().manual_seed(step)
        background.observe(torch.randn(4, 3, generator=generator), torch.arange(4))
    assert background.amount.item() == 0.5


def test_a_bad_batch_leaves_the_cosines_as_they_were():
    background = Estimated(16, cohesion=0.5, num_classes=4)
    features, targets = blobs(0.1)
    background.observe(features, targets)
    cosines = background.cosines.clone()
    background.observe(features * torch.nan, targets)
    assert_close(background.cosines, cosines, atol=0, rtol=0)


def test_without_labels_nothing_is_learned():
    background = Estimated(16, cohesion=0.5, num_classes=4)
    with pytest.raises(ValueError, match="learns from labels"):
        background.observe(blobs(0.1)[0])
    assert background.steps == 0
    with pytest.raises(ValueError, match="sees no labels"):
        tl.BackgroundNorm(16, cohesion=0.5, num_classes=4)


def test_a_head_trains_where_whitening_all_hides_the_classes():
    """Four classes in 64 dimensions of noise: the loss of the limited head falls further."""
    losses = {}
    for name, options in {"all": {}, "cohesive": {"cohesion": 0.5}}.items():
        torch.manual_seed(0)
        head = tl.LACE(64, 4, background_options=options)
        optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
        for step in range(150):
            features, targets = blobs(0.15, width=64, seed=step)
            optimizer.zero_grad()
            loss = head.loss(features, targets)
            loss.backward()
            optimizer.step()
        losses[name] = loss.item()
        if options:
            assert "cohesion=0.5" in repr(head)
    assert losses["cohesive"] < losses["all"] - 0.1
