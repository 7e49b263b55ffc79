"""Plain layers with the scores of a head."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from torchlace.functional import unit


class Normalize(nn.Module):
    """Scale every row to the same length, one unless another is given.

    Example:
        >>> Normalize()(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    def __init__(self, length: float = 1.0) -> None:
        super().__init__()
        self.length = length

    def forward(self, features: Tensor) -> Tensor:
        """Rows of this length; zero rows stay zero."""
        rows = unit(features)
        return rows if self.length == 1 else rows * self.length


class Folded(nn.Sequential):
    """What :meth:`Head.fold` returns: linear and normalising layers, and the temperature.

    Calling it gives the head's scores. They are not probabilities, nor are those of layers that are
    taken out of it and served elsewhere: ``softmax(scores / temperature)`` is, which
    :meth:`probabilities` computes. The temperature stays a separate last factor so that scores
    remain comparable; its printed form says what it is.

    Example:
        >>> from torchlace.heads import LACE
        >>> LACE(8, 3).fold()
        Folded(
          temperature=1
          (whiten): Linear(in_features=8, out_features=8, bias=True)
          (normalize): Normalize()
          (scores): Linear(in_features=8, out_features=3, bias=True)
        )
    """

    temperature: Tensor

    def __init__(self, temperature: Tensor, **layers: nn.Module) -> None:
        super().__init__(OrderedDict(layers))
        self.register_buffer("temperature", temperature.detach().clone())

    def extra_repr(self) -> str:
        """The temperature of the probabilities."""
        known = not self.temperature.is_meta
        return f"temperature={float(self.temperature):.4g}" if known else ""

    def probabilities(self, features: Tensor) -> Tensor:
        """Class probabilities at the fitted temperature, (N, C)."""
        return torch.softmax(self(features) / self.temperature, dim=-1)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with copies of these weights."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone())
    layer.bias = None if bias is None else nn.Parameter(bias.detach().clone())  # type: ignore[assignment]
    return layer
