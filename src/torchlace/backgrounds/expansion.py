"""Cosines from expanded squares, ‖x - μ‖² = ‖x‖² - 2μᵀx + ‖μ‖², for one mean a class."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace.functional.geometry import negligible


def scaled(features: Tensor, means: Tensor, least: float | None = None) -> tuple[Tensor, Tensor]:
    """Rows divided by the largest entry of features and means, and one over that, (N, 1).

    ``least`` as in :func:`nonzero`.
    """
    if features.shape[0] == 0:
        return features, features.new_ones(0, 1)
    size = features.detach().abs().amax(1, keepdim=True)
    size = nonzero(torch.maximum(size, means.detach().abs().flatten().amax(0)), least)
    return features / size, 1 / size


def nonzero(values: Tensor, least: float | None = None) -> Tensor:
    """The values as one may divide by them: 1 for 0, and up to ``least``, what counts as 0."""
    least = negligible(values.dtype) if least is None else least
    return torch.where(values > least, values, 1)


def ratio(products: Tensor, squares: Tensor, lengths: Tensor) -> Tensor:
    """Products / √(squares·lengths), 0 where a length is."""
    tiny = torch.finfo(products.dtype).eps ** 2
    valid = (squares > tiny) & (lengths > tiny)
    norms = torch.where(valid, squares, 1).sqrt() * torch.where(valid, lengths, 1).sqrt()
    return torch.where(valid, products, 0) / norms
