"""Margins: what an angular loss does to the cosine of the true class.

Each takes cosines of the target class and returns the smaller value that takes their place, with a
finite gradient at ±1 and monotone over the whole range of angles.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def additive_angular_margin(cosine: Tensor, margin: float) -> Tensor:
    """ArcFace: cos(θ + m), and cos θ - m·sin m past π - m, where cos(θ + m) would rise again.

    Example:
        >>> additive_angular_margin(torch.tensor([0.5, -1.0]), 0.5)
        tensor([ 0.0236, -1.2397])
    """
    eps = torch.finfo(cosine.dtype).eps
    sine = (1 - cosine.square()).clamp_min(eps).sqrt()
    shifted = cosine * math.cos(margin) - sine * math.sin(margin)
    return torch.where(cosine >= -math.cos(margin), shifted, cosine - margin * math.sin(margin))


def additive_cosine_margin(cosine: Tensor, margin: float) -> Tensor:
    """CosFace: cos θ - m.

    Example:
        >>> additive_cosine_margin(torch.tensor([0.5]), 0.4)
        tensor([0.1000])
    """
    return cosine - margin


def multiplicative_angular_margin(cosine: Tensor, margin: float) -> Tensor:
    """SphereFace: (-1)^k·cos(mθ) - 2k with k = ⌊mθ/π⌋, the monotone extension of cos(mθ).

    Example:
        >>> multiplicative_angular_margin(torch.tensor([0.5]), 1.35)
        tensor([0.1564])
    """
    eps = torch.finfo(cosine.dtype).eps
    theta = margin * torch.acos(cosine.clamp(-1 + eps, 1 - eps))
    turns = torch.floor(theta.detach() / math.pi)
    return (1 - 2 * (turns % 2)) * torch.cos(theta) - 2 * turns
