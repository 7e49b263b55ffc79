"""Layers between the features and the head, and a background that is given, not learned."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count
from torchlace.backgrounds import Background
from torchlace.estimators.samples import Samples, inverse_deviation

Hidden = int | tuple[int, ...] | None

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}


class Standardize(nn.Module):
    """Features less their mean, over their deviation; one that never varied becomes zero.

    Mean and deviation are those of all samples that were observed.
    """

    mass: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mass", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.zeros(width))

    def reset(self) -> None:
        """Forget all samples."""
        for buffer in self.buffers():
            buffer.zero_()

    def observe(self, samples: Samples) -> None:
        """Merge in more samples, exactly."""
        for features, _, counts in samples.chunks():
            self._merge(features, counts[:, None])

    def _merge(self, features: Tensor, counts: Tensor) -> None:
        mass, mean, deviation = (buffer.double() for buffer in self.buffers())
        count = counts.sum()
        step = (counts * (features - mean)).sum(0) / count
        variance = (counts * (features - mean - step).square()).sum(0) / count
        share = count / (mass + count)
        variance = (1 - share) * deviation.square() + share * variance
        variance = variance + share * (1 - share) * step.square()
        if not torch.isfinite(variance).all():
            raise ValueError("the features are too large to be squared: rescale them")
        self.deviation.copy_(variance.sqrt())
        self.mean.copy_(mean + share * step)
        self.mass.copy_(mass + count)

    def forward(self, features: Tensor) -> Tensor:
        """Standardised features, (N, d)."""
        return (features - self.mean) * inverse_deviation(self.mean, self.deviation)


class Homogeneous(nn.Module):
    """Appends a constant one to the features."""

    def forward(self, features: Tensor) -> Tensor:
        """Features, (N, d + 1)."""
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


class Fixed(Background):
    """A background of given mean and whitening, and perhaps a last coordinate both leave alone.

    Args:
        mean: μ, (d,).
        whitening: W, (d, d).
        constant: what a last, additional coordinate is multiplied by; None: there is none.
    """

    fixed_mean: Tensor
    whitening: Tensor

    def __init__(self, mean: Tensor, whitening: Tensor, constant: float | None = None) -> None:
        if constant is not None:
            mean = torch.cat([mean, mean.new_zeros(1)])
            whitening = torch.block_diag(whitening, whitening.new_full((1, 1), constant))
        super().__init__(len(mean))
        self.register_buffer("fixed_mean", mean)
        self.register_buffer("whitening", whitening)

    def set(self, mean: Tensor, whitening: Tensor) -> None:
        """Another mean and whitening of the same width."""
        width = len(mean)
        self.fixed_mean[:width] = mean
        self.whitening[:width, :width] = whitening

    @property
    def mean(self) -> Tensor:
        """μ, (d,)."""
        return self.fixed_mean

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        return vectors @ self.whitening.to(vectors.dtype).mT


def make_embedding(width: int, hidden: Hidden, activation: str) -> tuple[nn.Sequential, int]:
    """Standardisation and hidden layers, and how wide what they give is."""
    kind = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]
    sizes = () if hidden is None else hidden if isinstance(hidden, tuple | list) else (hidden,)
    widths = [width, *(check_count("hidden", size) for size in sizes)]
    layers: list[nn.Module] = [Standardize(width)]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), kind()]
    return nn.Sequential(*layers), widths[-1]
