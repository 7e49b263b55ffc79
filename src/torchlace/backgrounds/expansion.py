"""Cosines from expanded squares, ‖x - μ‖² = ‖x‖² - 2μᵀx + ‖μ‖², for one mean a class."""

from __future__ import annotations

import torch
from torch import Tensor


def scaled(features: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Rows divided by the largest entry of features and means, and one over that, (N, 1)."""
    if features.shape[0] == 0:
        return features, features.new_ones(0, 1)
    size = features.detach().abs().amax(1, keepdim=True)
    size = nonzero(torch.maximum(size, means.detach().abs().flatten().amax(0)))
    return features / size, 1 / size


def nonzero(values: Tensor) -> Tensor:
    """The values as one may divide by them: 1 for 0."""
    return torch.where(values > 0, values, 1)


def ratio(products: Tensor, squares: Tensor, lengths: Tensor) -> Tensor:
    """Products / √(squares·lengths), 0 where a length is."""
    tiny = torch.finfo(products.dtype).eps ** 2
    valid = (squares > tiny) & (lengths > tiny)
    norms = torch.where(valid, squares, 1).sqrt() * torch.where(valid, lengths, 1).sqrt()
    return torch.where(valid, products, 0) / norms
