"""Samples of classes that lie apart."""

import torch


def draw(count, classes, *, seed=0, spread=1.0, width=4):
    generator = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(
        classes, width, generator=torch.Generator().manual_seed(99), dtype=torch.float64
    )
    targets = torch.randint(classes, (count,), generator=generator)
    noise = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return means[targets] + noise + 3, targets
