"""A background as a layer inside a network."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import torchlace as tl

WIDTH = 4


def correlated(rows, generator):
    mix = torch.tensor([[2.0, 0, 0, 0], [1, 1, 0, 0], [0, 0.5, 3, 0], [1, 0, 1, 0.5]])
    return torch.randn(rows, WIDTH, generator=generator) @ mix.T + torch.arange(4.0)


@pytest.mark.parametrize("shape", [(256,), (16, 4, 4), (32, 8)], ids=["rows", "maps", "sequences"])
@pytest.mark.parametrize("method", ["newton-schulz", "cholesky"])
def test_output_is_white_on_a_long_run(shape, method):
    generator = torch.Generator().manual_seed(0)
    norm = tl.BackgroundNorm(WIDTH, method=method, shrinkage=1e-3)
    kept = []
    for _ in range(60):
        rows = correlated(256, generator)
        features = rows.view(*shape, WIDTH).movedim(-1, 1)
        out = norm(features)
        assert out.shape == features.shape
        kept.append(out.movedim(1, -1).reshape(-1, WIDTH))
    white = torch.cat(kept[30:]).detach()
    assert white.mean(0).abs().max() < 0.05
    assert_close(white.T.cov(), torch.eye(WIDTH), rtol=0, atol=0.08)


def test_maps_are_whitened_pixel_by_pixel():
    norm = tl.BackgroundNorm(WIDTH).eval()
    norm.background.train().observe(correlated(64, torch.Generator().manual_seed(1)))
    norm.background.eval()
    maps = torch.randn(2, WIDTH, 3, 5)
    pixels = torch.stack([norm(maps[:, :, i, j]) for i in range(3) for j in range(5)], dim=-1)
    assert_close(norm(maps), pixels.view(2, WIDTH, 3, 5))


def test_keeps_the_layout_of_maps():
    norm, maps = tl.BackgroundNorm(WIDTH), torch.randn(2, WIDTH, 4, 4)
    assert norm(maps).view(2, -1).shape == (2, WIDTH * 16)
    last = maps.to(memory_format=torch.channels_last)
    assert norm(last).is_contiguous(memory_format=torch.channels_last)


def test_affine_scales_and_shifts_channels():
    norm = tl.BackgroundNorm(WIDTH).eval()
    with torch.no_grad():
        norm.weight.copy_(torch.arange(4.0))
        norm.bias.copy_(torch.tensor([1.0, 0, 0, -1]))
    maps = torch.randn(2, WIDTH, 3, 3)
    expected = maps * norm.weight[:, None, None] + norm.bias[:, None, None]
    assert_close(norm(maps), expected)
    plain = tl.BackgroundNorm(WIDTH, affine=False)
    assert plain.weight is None
    assert not list(plain.parameters())


def test_half_precision_in_and_out_but_not_inside():
    norm, exact = tl.BackgroundNorm(WIDTH), tl.BackgroundNorm(WIDTH)
    features = correlated(64, torch.Generator().manual_seed(2)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        out = norm(features)
    assert out.dtype == torch.bfloat16
    expected = exact(features.float())
    assert_close(norm.background.whitening, exact.background.whitening)
    assert_close(out, expected.bfloat16())


@pytest.mark.parametrize(
    "background",
    [tl.backgrounds.Learned(WIDTH), tl.backgrounds.LowRankTotal(WIDTH, rank=2)],
    ids=lambda background: type(background).__name__,
)
def test_other_backgrounds_serve(background):
    norm = tl.BackgroundNorm(WIDTH, background, affine=False)
    rows = correlated(64, torch.Generator().manual_seed(3))
    assert_close(
        norm(rows.view(4, 4, 4, WIDTH).movedim(-1, 1)).movedim(1, -1).reshape(-1, WIDTH),
        background.whiten(rows),
    )


@pytest.mark.parametrize(
    "background",
    [
        tl.backgrounds.Learned(5),
        tl.backgrounds.LearnedLowRank(WIDTH, rank=2),
        tl.backgrounds.Within(WIDTH, 3),
        tl.backgrounds.OneVsAll(WIDTH, 3),
        tl.backgrounds.LearnedOneVsAll(WIDTH, 3),
        tl.backgrounds.LearnedOneVsOne(WIDTH, 3),
    ],
    ids=lambda background: type(background).__name__,
)
def test_backgrounds_that_cannot_serve_are_refused(background):
    with pytest.raises(ValueError, match="background"):
        tl.BackgroundNorm(WIDTH, background)


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="num_features"):
        tl.BackgroundNorm(0)
    with pytest.raises(TypeError, match="decay"):
        tl.BackgroundNorm(WIDTH, tl.backgrounds.Learned(WIDTH), decay=0.5)
    with pytest.raises(TypeError, match="unknown option of Total 'decy': did you mean 'decay'"):
        tl.BackgroundNorm(WIDTH, decy=0.5)
    with pytest.raises(TypeError, match="background must be a Background or None, got 'learned'"):
        tl.BackgroundNorm(WIDTH, "learned")
    for shape in ((8, 5), (8,), (8, 5, 4)):
        with pytest.raises(ValueError, match=rf"features must have shape \(N, {WIDTH}"):
            tl.BackgroundNorm(WIDTH)(torch.randn(shape))


def test_trains_inside_a_network():
    torch.manual_seed(0)
    images, targets = torch.randn(64, 1, 8, 8), torch.arange(64) % 4
    images += torch.randn(4, 1, 8, 8)[targets]
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, bias=False),
        tl.BackgroundNorm(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=False),
        tl.BackgroundNorm(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = nn.functional.cross_entropy(network(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    accuracy = (network.eval()(images).argmax(1) == targets).double().mean()
    assert accuracy > 0.9
