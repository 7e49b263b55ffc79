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
    weights: Tensor | None,
    decay: float,
    reduce: Reduce | None = None,
    *,
    fourth: bool = True,
) -> Moments:
    """Merge a batch: earlier samples count ``decay`` times what they did, the new ones ``weights``.

    The result is exactly the weighted mean and covariance of all samples seen (the drift between
    batches included), so the first batches need no separate bias correction. A batch with a
    value that is not finite counts for nothing.

    Args:
        moments: what was known before.
        features: (N, d).
        weights: of each sample in each group, (G, N); None for one each, in one group.
        decay: in [0, 1).
        reduce: sums a tensor over all processes; omitted for one process.
        fourth: follow :attr:`Moments.fourth` and :attr:`Moments.spread` too, at some cost.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> update_moments(empty_moments(1, 1), x, None, 0.99).mean
        tensor([[1.]])
    """
    groups, width = moments.mean.shape
    shifted = features - moments.mean[:, None]
    if weights is None:
        count = shifted.new_full((1,), features.shape[0])
        squares, total = count, shifted.sum(1)
    else:
        count, squares = weights.sum(1), weights.square().sum(1)
        total = (weights[:, None] @ shifted)[:, 0]
    sums = torch.cat([_largest(shifted), count, squares, total.flatten()])
    sums = sums if reduce is None else reduce(sums)
    finite = torch.isfinite(sums.sum())
    sums, shifted = torch.where(finite, sums, 0), torch.where(finite, shifted, 0)
    largest, count, squares, total = sums.split([1, groups, groups, groups * width])

    # A sum of the largest entries of all processes bounds them all, and needs no second collective.
    unit = torch.maximum(moments.unit * decay**0.5, largest[0])
    unit = torch.where(unit > 0, unit, 1)
    some = torch.where(count > 0, count, 1)
    step = total.view(groups, width) / some[:, None]
    centred = (shifted - step[:, None]) / unit
    weighted = centred if weights is None else centred * weights[..., None]
    sums = weighted.mT @ centred
    if fourth:
        quartic = (weighted * centred).sum(-1) * centred.square().sum(-1)
        sums = torch.cat([sums.flatten(), quartic.sum(-1)])
    sums = sums if reduce is None else reduce(sums)
    scatter = sums.flatten()[: groups * width**2].view(groups, width, width)

    mass = decay * moments.mass + count
    share = count / torch.where(mass > 0, mass, 1)
    keep, ratio = 1 - share, moments.unit / unit
    drift = step / unit
    matrix = (..., None, None)
    covariance = (keep * ratio**2)[matrix] * moments.covariance
    covariance = covariance + (share / some)[matrix] * scatter
    covariance = covariance + ((share * keep)[:, None] * drift)[..., None] * drift[:, None]
    moments = moments._replace(
        mass=mass, mean=moments.mean + share[:, None] * step, covariance=covariance, unit=unit
    )
    if not fourth:
        return moments
    return moments._replace(
        fourth=keep * ratio**4 * moments.fourth + share * sums[-groups:] / some,
        spread=keep**2 * moments.spread + share**2 * squares / some**2,
    )


def _largest(values: Tensor) -> Tensor:
    if values.numel() == 0:
        return values.new_zeros(1)
    return torch.linalg.vector_norm(values, ord=torch.inf).reshape(1)
