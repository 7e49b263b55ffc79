"""What losses add to cross-entropy: margins on the true class, and losses on the features.

A margin takes cosines of the target class and returns the smaller value that takes their place,
with a finite gradient at ±1 and monotone over the whole range of angles.

A loss on the features returns one value for each sample, so that class weights, ignored samples and
reductions mean what they mean for cross-entropy; the loss of the papers is the mean of these. Of
soft targets it is the mean over the labels of a sample, weighed by their shares.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlace.functional.geometry import angle
from torchlace.functional.targets import (
    Mixed,
    Targets,
    averaged,
    in_rows,
    is_dense,
    labelled,
)


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


def center_loss(
    features: Tensor, targets: Targets, centers: Tensor, weight: Tensor | None = None
) -> Tensor:
    """Squared Euclidean distance of every sample to the centre of its class, (N,).

    Summed over the features, without the factor ½.

    Args:
        features: (N, d).
        targets: class indices, (N,), or a soft target of each sample; a negative index marks a
            sample without a class and gives 0.
        centers: (C, d).
        weight: class weights, (C,).

    Example:
        >>> center_loss(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.zeros(2, 2))
        tensor([25.])
    """

    def of_label(labels: Tensor) -> Tensor:
        label = labels.clamp_min(0)
        distances = (features - centers[label]).square().sum(-1)
        distances = distances if weight is None else distances * weight[label]
        return torch.where(labels >= 0, distances, 0)

    if isinstance(targets, Mixed):
        return averaged(of_label, targets)
    if not is_dense(targets):
        return of_label(targets)
    # The distance to the likeliest centre is exact, the others are expanded.
    top = targets.argmax(dim=1)
    origin = centers.detach().mean(0)
    shifted, others = features - origin, centers - origin
    each = shifted.square().sum(1, keepdim=True) - 2 * shifted @ others.mT + others.square().sum(1)
    each = each.clamp_min(0) if weight is None else each.clamp_min(0) * weight
    return (targets * each.scatter(1, top[:, None], of_label(top)[:, None])).sum(1)


def amc_loss(
    features: Tensor, targets: Targets, margin: float = 0.5, weight: Tensor | None = None
) -> Tensor:
    """Angular margin contrastive loss of every sample, (N,).

    Sample i of the first half of the batch is paired with sample i of the second half. A pair at
    angle θ costs θ² if its labels agree and max(0, margin - θ)² if not. Both members carry
    its cost, scaled so that the mean over the batch is the mean over the pairs.

    Args:
        features: (N, d); the last sample of an odd batch has no partner.
        targets: class indices, (N,), or a soft target of each sample, whose labels agree with
            those of its partner by the share that their product has; pairs with a negative index
            are left out.
        margin: angle in radians beyond which different classes are far enough apart.
        weight: class weights, (C,).

    Example:
        >>> amc_loss(torch.eye(2), torch.tensor([0, 1]))  # 90° apart, further than the margin
        tensor([0., 0.])
    """
    pairs = features.shape[0] // 2
    targets = in_rows(targets, features.dtype, -1)
    known, halves = labelled(targets), (slice(0, pairs), slice(pairs, 2 * pairs))
    theta = angle(*(features[half] for half in halves))
    valid = known[halves[0]] & known[halves[1]]
    ratio = known.sum().to(theta.dtype) / (2 * valid.sum().clamp_min(1))
    near, far = (
        torch.where(valid, cost, 0) * ratio
        for cost in (theta.square(), (margin - theta).clamp_min(0).square())
    )
    left, right = (_part(targets, half) for half in halves)
    costs = [
        near * agree + far * (mass - agree)
        for agree, mass in (_agreement(left, right, weight), _agreement(right, left, weight))
    ]
    return torch.cat([*costs, near.new_zeros(features.shape[0] - 2 * pairs)])


def _part(targets: Targets, half: slice) -> Targets:
    if not isinstance(targets, Mixed):
        return targets[half]
    first, second, weight = targets.first, targets.second, torch.as_tensor(targets.weight)
    return Mixed(first[half], second[half], weight[half])


def _agreement(own: Targets, others: Targets, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    """Summed class weights of the labels of samples, as far as they agree with others', and all."""
    if is_dense(own) and is_dense(others):
        weighed = own if weight is None else own * weight
        return (weighed * others).sum(1), weighed.sum(1)
    mine, theirs = _labels(own), _labels(others)
    parts = [
        share if weight is None else share * weight[label.clamp_min(0)] for label, share in mine
    ]
    agreed = [
        torch.where(label == other, part * share, 0)
        for (label, _), part in zip(mine, parts, strict=True)
        for other, share in theirs
    ]
    return torch.stack(agreed).sum(0), torch.stack(parts).sum(0)


def _labels(targets: Targets) -> list[tuple[Tensor, Tensor]]:
    """Labels of samples, each with its share."""
    if isinstance(targets, Mixed):
        weight = torch.as_tensor(targets.weight)
        return [(targets.first, weight), (targets.second, 1 - weight)]
    return [(targets, torch.ones_like(targets, dtype=torch.float32))]
