"""Running mean and covariance of features, exact in any number of groups and at any magnitude."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Reduce = Callable[[Tensor], Tensor]


class Moments(NamedTuple):
    """Exponentially weighted moments of G groups of samples.

    Covariances are kept in units of ``unit`` squared, so that features of 1e±20 neither overflow
    nor vanish.
    """

    mass: Tensor
    """Decayed sum of sample weights, (G,)."""
    mean: Tensor
    """(G, d)."""
    covariance: Tensor
    """About the running mean, divided by unit², (G, d, d)."""
    unit: Tensor
    """A common length, ()."""
    fourth: Tensor
    """Mean of ‖x - mean‖⁴ / unit⁴, (G,)."""
    spread: Tensor
    """One over the effective number of samples, (G,)."""


def empty_moments(
    groups: int, width: int, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Moments:
    """Moments of no samples.

    Example:
        >>> empty_moments(1, 3).mean
        tensor([[0., 0., 0.]])
    """
    shapes = ((groups,), (groups, width), (groups, width, width), (), (groups,), (groups,))
    return Moments(*(torch.zeros(shape, device=device, dtype=dtype) for shape in shapes))


def update_moments(
    moments: Moments,
    features: Tensor,
    weights: Tensor,
    decay: float,
    reduce: Reduce | None = None,
) -> Moments:
    """Merge a batch: earlier samples count ``decay`` times what they did, the new ones ``weights``.

    The result is exactly the weighted mean and covariance of all samples seen (the drift between
    batches included), so the first batches need no separate bias correction. A batch with a
    value that is not finite leaves the moments as they were.

    Args:
        moments: what was known before.
        features: (N, d).
        weights: of each sample in each group, (G, N).
        decay: in [0, 1).
        reduce: sums a tensor over all processes; omitted for one process.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> update_moments(empty_moments(1, 1), x, torch.ones(1, 2), 0.99).mean
        tensor([[1.]])
    """
    groups, width = moments.mean.shape
    shifted = features - moments.mean[:, None]
    largest = shifted.abs().amax().reshape(1) if features.shape[0] else features.new_zeros(1)
    sums = torch.cat(
        [largest, weights.sum(1), weights.square().sum(1), (weights[:, None] @ shifted).flatten()]
    )
    sums = sums if reduce is None else reduce(sums)
    largest, count, squares, total = sums.split([1, groups, groups, groups * width])

    # A sum of the largest entries of all processes bounds them all, and needs no second collective.
    unit = torch.maximum(moments.unit * decay**0.5, largest[0])
    unit = torch.where(unit > 0, unit, 1)
    some = torch.where(count > 0, count, 1)
    step = total.view(groups, width) / some[:, None]
    centred = (shifted - step[:, None]) / unit
    lengths = centred.square().sum(-1)
    scatter = (centred * weights[..., None]).mT @ centred
    sums = torch.cat([scatter.flatten(), (weights * lengths.square()).sum(1)])
    sums = sums if reduce is None else reduce(sums)
    scatter = sums[:-groups].view(groups, width, width) / some[:, None, None]
    fourth = sums[-groups:] / some

    mass = decay * moments.mass + count
    share = count / torch.where(mass > 0, mass, 1)
    keep, ratio = 1 - share, moments.unit / unit
    drift = step / unit
    matrix = (..., None, None)
    covariance = (
        (keep * ratio**2)[matrix] * moments.covariance
        + share[matrix] * scatter
        + (share * keep)[matrix] * drift[..., :, None] * drift[..., None, :]
    )
    merged = Moments(
        mass,
        moments.mean + share[:, None] * step,
        covariance,
        unit,
        keep * ratio**4 * moments.fourth + share * fourth,
        keep**2 * moments.spread + share**2 * squares / some**2,
    )
    finite = torch.isfinite(sums.sum()) & torch.isfinite(total.sum())
    return Moments(
        *(torch.where(finite, new, old) for new, old in zip(merged, moments, strict=True))
    )
