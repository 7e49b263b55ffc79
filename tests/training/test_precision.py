"""Inside autocast backgrounds compute as outside."""

import copy

import pytest
import torch

from torchlace import LACE
from torchlace.backgrounds import BackgroundNorm, LowRankTotal


@pytest.mark.parametrize("norm", [BackgroundNorm(8, LowRankTotal(8, rank=3)), BackgroundNorm(8)])
def test_a_background_in_the_network(norm):
    other = copy.deepcopy(norm)
    for seed in range(12):
        images = torch.randn(16, 8, 4, 4, generator=torch.Generator().manual_seed(seed))
        with torch.autocast("cpu", torch.bfloat16):
            inside = other(images)
        torch.testing.assert_close(inside, norm(images), rtol=0, atol=0)


def test_a_low_rank_background_in_the_head():
    head = LACE(8, 3, background="low-rank", background_options={"rank": 2})
    other = copy.deepcopy(head)
    for seed in range(12):
        features = torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))
        with torch.autocast("cpu", torch.bfloat16):
            inside = other.loss(features, torch.arange(16) % 3)
        outside = head.loss(features, torch.arange(16) % 3)
        torch.testing.assert_close(inside, outside, rtol=0, atol=0)
