"""What losses add to cross-entropy: margins on the true class, and losses on the features.

A margin takes cosines of the target class and returns the smaller value that takes their place,
with a finite gradient at ±1 and monotone over the whole range of angles.

A loss on the features returns one value for each sample, so that class weights, ignored samples and
reductions mean what they mean for cross-entropy; the loss of the papers is the mean of these.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlace.functional.geometry import angle


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


def center_loss(features: Tensor, targets: Tensor, centers: Tensor) -> Tensor:
    """Squared Euclidean distance of every sample to the centre of its class, (N,).

    Summed over the features, without the factor ½.

    Args:
        features: (N, d).
        targets: class indices, (N,); a negative one marks a sample without a class and gives 0.
        centers: (C, d).

    Example:
        >>> center_loss(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.zeros(2, 2))
        tensor([25.])
    """
    distances = (features - centers[targets.clamp_min(0)]).square().sum(-1)
    return torch.where(targets >= 0, distances, 0)


def amc_loss(features: Tensor, targets: Tensor, margin: float = 0.5) -> Tensor:
    """Angular margin contrastive loss of every sample, (N,).

    Sample i of the first half of the batch is paired with sample i of the second half. A pair at
    angle θ costs θ² if its labels agree and max(0, margin - θ)² if not. Both members carry
    its cost, scaled so that the mean over the batch is the mean over the pairs.

    Args:
        features: (N, d); the last sample of an odd batch has no partner.
        targets: class indices, (N,); pairs with a negative one are left out.
        margin: angle in radians beyond which different classes are far enough apart.

    Example:
        >>> amc_loss(torch.eye(2), torch.tensor([0, 1]))  # 90° apart, further than the margin
        tensor([0., 0.])
    """
    pairs = features.shape[0] // 2
    left, right = targets[:pairs], targets[pairs : 2 * pairs]
    theta = angle(features[:pairs], features[pairs : 2 * pairs])
    costs = torch.where(left == right, theta.square(), (margin - theta).clamp_min(0).square())
    valid = (left >= 0) & (right >= 0)
    samples = (targets >= 0).sum().to(costs.dtype)
    costs = torch.where(valid, costs, 0) * (samples / (2 * valid.sum().clamp_min(1)))
    return torch.cat([costs, costs, costs.new_zeros(features.shape[0] - 2 * pairs)])
