"""Labelled points to score."""

import torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def cloud(samples, width, classes, *, spread=1.0, offset=0.0, seed=0):
    """Gaussian classes of unequal size around random means."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(classes, generator=generator) + 0.2
    labels = torch.multinomial(shares, samples, replacement=True, generator=generator)
    means = torch.randn(classes, width, generator=generator) + offset
    noise = torch.randn(samples, width, generator=generator)
    return means[labels] + spread * noise, labels
