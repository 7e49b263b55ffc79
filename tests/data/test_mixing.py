"""Shifted, erased and mixed images, pixel by pixel."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from torchlace.data import Augment, DataError, Mixing

PLAIN = ([0.0] * 3, [1 / 255] * 3)  # normalising by these changes nothing


def shifting(size, **options):
    return Augment(*PLAIN, size, crop="shift", **options)


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.integers(8, 33), st.integers(8, 33), st.booleans())
def test_a_shift_moves_whole_pixels_and_goes_on_with_their_mirror_image(seed, height, width, flip):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(256, (3, 3, height, width), dtype=torch.uint8, generator=generator)
    draws = torch.rand(3, 23, generator=generator)
    ours = shifting((height, width), mirror=flip)(images, draws=draws)
    for image, drawn, found in zip(images, draws, ours, strict=True):
        down, across = (
            int(drawn[place] * (2 * (side // 8) + 1)) for place, side in ((0, height), (1, width))
        )
        around = [(0, 0), (height // 8,) * 2, (width // 8,) * 2]
        wide = np.pad(image.numpy(), around, mode="symmetric")
        moved = wide[:, down : down + height, across : across + width]
        moved = moved[..., ::-1] if flip and drawn[-1] < 0.5 else moved
        np.testing.assert_allclose(found, moved.astype(np.float32), atol=0.05)


def test_an_erased_square_holds_the_mean_and_nothing_else_changes():
    images = torch.randint(1, 256, (64, 3, 16, 16), dtype=torch.uint8)
    draws = torch.rand(64, 25)
    kept = shifting(16, mirror=True)(images, draws=torch.cat((draws[:, :22], draws[:, 24:]), 1))
    erased = shifting(16, mirror=True, erase=0.25)(images, draws=draws)
    gone = (erased == 0).all(1)
    assert torch.equal(torch.where(gone[:, None], 0, kept), erased)
    for hole, (y, x) in zip(gone, 16 * draws[:, 22:24], strict=True):
        rows, columns = (range(16) for _ in range(2))
        expected = [[abs(r + 0.5 - y) < 2 and abs(c + 0.5 - x) < 2 for c in columns] for r in rows]
        assert hole.tolist() == expected


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.floats(0, 1), st.integers(1, 12), st.integers(1, 12))
def test_every_pixel_is_of_the_image_or_of_the_one_before_it(seed, share, height, width):
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(5, 2, height, width, generator=generator)
    labels, draws = torch.arange(5), torch.rand(5, 4, generator=generator)
    mixed, targets = Mixing(mixup=1 - share, cutmix=share)(images, labels, draws)
    assert torch.equal(targets.first, labels)
    half, one = np.float32(0.5), np.float32(1)  # in single precision, as the images are
    for n, (kind, left, y, x) in enumerate(draws.numpy()):
        kept = np.full((height, width), left)
        if kind < np.float32(share):
            side = np.sqrt(one - left) / 2
            for r, c in np.ndindex(height, width):
                down = abs((np.float32(r) + half) / np.float32(height) - y)
                across = abs((np.float32(c) + half) / np.float32(width) - x)
                kept[r, c] = not (down < side and across < side)
        other = int(targets.second[n])
        assert other == (n - 1) % 5
        expected = kept * images[n].numpy() + (one - kept) * images[other].numpy()
        np.testing.assert_allclose(mixed[n], expected, atol=1e-5)
        assert float(targets.weight[n]) == pytest.approx(kept.mean(), abs=1e-5)


def test_the_shares_are_those_asked_for():
    mixing, count = Mixing(mixup=0.2, cutmix=0.5), 20_000
    images = torch.arange(count).float().view(-1, 1, 1, 1).expand(-1, 1, 4, 4)
    draws = mixing.draw(count, images.device, torch.Generator().manual_seed(0))
    mixed, targets = mixing(images, images[:, 0, 0, 0].long(), draws)
    flat = (mixed == mixed[:, :, :1, :1]).all((1, 2, 3))
    assert 1 - float(targets.weight.mean()) == pytest.approx(0.1 + 0.5 * 0.36, abs=0.03)
    # Some rectangles hold no pixel, or all.
    assert float((~flat).float().mean()) == pytest.approx(0.45, abs=0.06)
    assert float((targets.weight == 1).float().mean()) == pytest.approx(0.33, abs=0.05)


def test_more_than_all_images_can_t_be_mixed():
    with pytest.raises(DataError, match=r"together at most 1, got 0\.6 and 0\.5"):
        Mixing(mixup=0.6, cutmix=0.5)
