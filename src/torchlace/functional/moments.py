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
    """A common length, (); 0 before anything but zeros was seen."""
    third: Tensor
    """Mean of ‖x - mean‖²(x - mean) / unit³, (G, d)."""
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
    vector, matrix = (groups, width), (groups, width, width)
    shapes = ((groups,), vector, matrix, (), vector, (groups,), (groups,))
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
        fourth: follow the third and fourth moments and the spread too, at some cost.

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
    sums = torch.cat([largest(shifted), count, squares, total.flatten()])
    sums = sums if reduce is None else reduce(sums)
    finite = torch.isfinite(sums.sum())
    sums, shifted = torch.where(finite, sums, 0), torch.where(finite, shifted, 0)
    bound, count, squares, total = sums.split([1, groups, groups, groups * width])

    # A sum of the largest entries of all processes bounds them all, and needs no second collective.
    unit = next_unit(moments.unit, bound[0], count.sum(), decay)
    length = torch.where(unit > 0, unit, 1)
    some = torch.where(count > 0, count, 1)
    step = total.view(groups, width) / some[:, None]
    drift = step / length
    mass = decay * moments.mass + count
    share = count / torch.where(mass > 0, mass, 1)
    keep, ratio = 1 - share, moments.unit / length
    centred = (shifted - step[:, None]) / length
    merged = moments._replace(mass=mass, mean=moments.mean + share[:, None] * step, unit=unit)
    if reduce is None and not fourth:
        # Batch and drift in one product onto the past: few passes over the d × d matrix.
        roots = (share / some).sqrt()[:, None] * (1 if weights is None else weights.sqrt())
        between = (share * keep).sqrt()[:, None, None] * drift[:, None]
        rows = torch.cat([centred * roots[..., None], between], dim=1)
        past = (keep * ratio**2)[..., None, None] * moments.covariance
        return merged._replace(covariance=_add_scatter(past, rows))

    weighted = centred if weights is None else centred * weights[..., None]
    scatter = weighted.mT @ centred
    if fourth:
        squares_of = centred.square().sum(-1, keepdim=True)
        third = (weighted * squares_of).sum(1)
        quartic = ((weighted * centred).sum(-1, keepdim=True) * squares_of).sum(1)
        sums = torch.cat([scatter, third[:, None], quartic[..., None].expand(-1, 1, width)], dim=1)
        sums = (sums if reduce is None else reduce(sums.contiguous())) / some[:, None, None]
        scatter, batch_third, batch_fourth = sums[:, :width], sums[:, width], sums[:, width + 1, 0]
    elif reduce is not None:
        scatter = reduce(scatter) / some[:, None, None]

    matrix = (..., None, None)
    past = (ratio**2)[matrix] * moments.covariance
    covariance = keep[matrix] * past + share[matrix] * scatter
    covariance = covariance + ((share * keep)[:, None] * drift)[..., None] * drift[:, None]
    merged = merged._replace(covariance=covariance)
    if not fourth:
        return merged
    old = _shift(ratio**3 * moments.third, ratio**4 * moments.fourth, past, share, drift)
    new = _shift(batch_third, batch_fourth, scatter, -keep, drift)
    return merged._replace(
        third=keep[:, None] * old[0] + share[:, None] * new[0],
        fourth=keep * old[1] + share * new[1],
        spread=keep**2 * moments.spread + share**2 * squares / some**2,
    )


def _shift(
    third: Tensor, fourth: Tensor, covariance: Tensor, part: Tensor, drift: Tensor
) -> tuple[Tensor, Tensor]:
    """Third and fourth moments about a mean that has moved by ``part``·``drift``."""
    by = part[:, None] * drift
    square = by.square().sum(-1)
    variance = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    turned = (covariance @ by[..., None])[..., 0]
    fourth = fourth + 4 * ((turned - third) * by).sum(-1) + 2 * variance * square + square**2
    return third - 2 * turned - (variance + square)[:, None] * by, fourth


def _add_scatter(matrix: Tensor, rows: Tensor) -> Tensor:
    # In place, where torch.func allows it: a fresh d × d matrix costs as much as the product.
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(rows):
        return torch.baddbmm(matrix, rows.mT, rows)
    return matrix.baddbmm_(rows.mT, rows)


def next_unit(unit: Tensor, bound: Tensor, count: Tensor, decay: float) -> Tensor:
    """The unit after a batch of ``count`` samples within ``bound``; it falls as others fade."""
    fading = torch.where(count > 0, max(decay**0.5, 1e-3), 1.0)
    return torch.maximum(unit * fading.to(unit.dtype), bound)


def largest(values: Tensor) -> Tensor:
    """The largest absolute entry of all, (1,); 0 of none."""
    if values.numel() == 0:
        return values.new_zeros(1)
    size: Tensor = torch.linalg.vector_norm(values, ord=torch.inf)
    return size.reshape(1)
