import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from torchlace.data import DataError, MemoryImages, channel_statistics, stratified_split
from torchlace.data.load import part_digest


def test_the_same_indices_on_every_machine():
    labels = torch.tensor([0, 1, 2] * 10)
    rest, held_out = stratified_split(labels, 0.2, seed=0)
    assert held_out.tolist() == HELD_OUT[0]
    assert sorted([*rest.tolist(), *held_out.tolist()]) == list(range(30))
    assert stratified_split(labels, 0.2, seed=7)[1].tolist() == HELD_OUT[7]


HELD_OUT = {0: [2, 4, 6, 8, 10, 18], 7: [1, 9, 11, 14, 18, 19]}


@settings(max_examples=60)
@given(
    st.lists(st.integers(-3, 6), min_size=0, max_size=120),
    st.floats(0.01, 0.99),
    st.integers(0, 2**70),
)
def test_every_class_is_in_both_parts(labels, fraction, seed):
    labels = torch.tensor(labels, dtype=torch.int64)
    rest, held_out = stratified_split(labels, fraction, seed)
    assert sorted([*rest.tolist(), *held_out.tolist()]) == list(range(len(labels)))
    assert rest.tolist() == sorted(rest.tolist())
    assert held_out.tolist() == sorted(held_out.tolist())
    for label in labels.unique():
        count, held = int((labels == label).sum()), int((labels[held_out] == label).sum())
        assert held == 0 if count == 1 else 1 <= held <= count - 1
        assert abs(held - fraction * count) <= 1
    again = stratified_split(labels, fraction, seed)
    assert torch.equal(again[0], rest)
    assert torch.equal(again[1], held_out)


def test_the_total_is_right_where_classes_are_large_enough():
    labels = torch.arange(100).repeat(14)
    assert len(stratified_split(labels, 0.1, seed=0)[1]) == 140


def test_seeds_differ():
    labels = torch.zeros(1000, dtype=torch.int64)
    first, second = (set(stratified_split(labels, 0.5, seed)[1].tolist()) for seed in (0, 1))
    assert 180 < len(first & second) < 320


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_a_fraction_outside_of_0_to_1_is_an_error(fraction):
    with pytest.raises(ValueError, match="fraction"):
        stratified_split(torch.zeros(4, dtype=torch.int64), fraction, 0)


def test_labels_must_be_integers():
    with pytest.raises(DataError, match="integers"):
        stratified_split(torch.zeros(4), 0.5, 0)


def test_statistics_of_some_images():
    pixels = torch.randint(256, (700, 3, 5, 4), dtype=torch.uint8)
    images = MemoryImages(pixels, torch.zeros(700).long())
    chosen = torch.arange(0, 700, 3)
    mean, std = channel_statistics(images, chosen)
    values = pixels[chosen].double() / 255
    torch.testing.assert_close(mean, values.mean(dim=(0, 2, 3)).float())
    torch.testing.assert_close(std, values.std(dim=(0, 2, 3), unbiased=False).float())


def test_statistics_of_a_constant_channel_can_be_divided_by():
    images = MemoryImages(torch.full((3, 1, 4, 4), 9, dtype=torch.uint8), torch.zeros(3).long())
    assert channel_statistics(images)[1].item() == pytest.approx(1 / 255)


def test_digests_don_t_depend_on_order_but_on_everything_else():
    pixels = torch.randint(256, (20, 1, 4, 4), dtype=torch.uint8)
    labels = torch.arange(20) % 3
    order = torch.randperm(20)
    digest = part_digest(MemoryImages(pixels, labels))
    assert part_digest(MemoryImages(pixels[order], labels[order])) == digest
    assert part_digest(MemoryImages(pixels, labels.roll(1))) != digest
    assert part_digest(MemoryImages(pixels.view(20, 1, 2, 8), labels)) != digest
    changed = pixels.clone()
    changed[3, 0, 1, 1] ^= 1
    assert part_digest(MemoryImages(changed, labels)) != digest
