"""What stands between the features and the head."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count
from torchlace.estimators.samples import Samples

Hidden = int | tuple[int, ...] | None

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
}


class Standardize(nn.Module):
    """Features less their mean, over their deviation; one that never varied becomes zero.

    Mean and deviation are those of all samples that were observed.

    Example:
        >>> layer = Standardize(1)
        >>> x = torch.tensor([[1.0], [3.0]])
        >>> layer.observe(Samples(x, *[torch.ones(2)] * 3))
        >>> layer(x)
        tensor([[-1.],
                [ 1.]])
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
    """Features and a constant one behind them.

    Example:
        >>> Homogeneous()(torch.tensor([[3.0, 4.0]]))
        tensor([[3., 4., 1.]])
    """

    def forward(self, features: Tensor) -> Tensor:
        """Features, (N, d + 1)."""
        return torch.cat([features, torch.ones_like(features[:, :1])], dim=1)


def inverse_deviation(mean: Tensor, deviation: Tensor) -> Tensor:
    """One over the deviation of each feature; 0 where all of it is rounding.

    Example:
        >>> inverse_deviation(torch.tensor([5.0, 5.0]), torch.tensor([2.0, 1e-9]))
        tensor([0.5000, 0.0000])
    """
    varies = deviation > 32 * torch.finfo(mean.dtype).eps * mean.abs()
    return torch.where(varies, 1 / torch.where(varies, deviation, 1), 0)


def make_embedding(width: int, hidden: Hidden, activation: str) -> tuple[nn.Sequential, int]:
    """Standardisation and hidden layers, and how wide what they give is.

    Example:
        >>> make_embedding(64, 32, "relu")
        (Sequential(
          (0): Standardize()
          (1): Linear(in_features=64, out_features=32, bias=True)
          (2): ReLU()
        ), 32)
    """
    kind = ACTIVATIONS[check_choice("activation", activation, ACTIVATIONS)]
    sizes = () if hidden is None else hidden if isinstance(hidden, tuple | list) else (hidden,)
    widths = [width, *(check_count("hidden", size) for size in sizes)]
    layers: list[nn.Module] = [Standardize(width)]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), kind()]
    return nn.Sequential(*layers), widths[-1]
