"""Running mean and covariance of features, exact in any number of groups and at any magnitude."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchlace.functional import merging
from torchlace.functional.merging import Decay, Merge, Reduce


class Moments(NamedTuple):
    """Running mean and covariance of G groups of samples, earlier ones counting less.

    Covariances are kept in units of ``unit`` squared, so that features of 1e±20 neither overflow
    nor vanish.
    """

    mass: Tensor
    """Decayed sum of sample weights, (G,)."""
    mean: Tensor
    """(G, d)."""
    covariance: Tensor
    """About the running mean, divided by unit², (G, d, d); or in its place what a sketch keeps of
    it, (1, d, 1 + r), the variances first."""
    unit: Tensor
    """A common length, (1,); 1 until anything but zeros was seen."""
    third: Tensor
    """Mean of ‖x - mean‖²(x - mean) / unit³, (G, d)."""
    fourth: Tensor
    """Mean of ‖x - mean‖⁴ / unit⁴, (G,)."""
    spread: Tensor
    """One over the effective number of samples, (G,)."""

    def but(self, **new: Tensor) -> Moments:
        """With some of them replaced; torch 2.8 can't compile ``_replace``."""
        parts = zip(Moments._fields, self, strict=True)
        return Moments(*(new.get(name, old) for name, old in parts))


def empty_moments(
    groups: int,
    width: int,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    *,
    sketch: Tensor | None = None,
) -> Moments:
    """Moments of no samples; ``sketch`` as in :func:`update_moments`.

    Example:
        >>> empty_moments(1, 3).mean
        tensor([[0., 0., 0.]])
    """
    columns = width if sketch is None else 1 + sketch.shape[1]
    vector, matrix = (groups, width), (groups, width, columns)
    shapes = ((groups,), vector, matrix, (1,), vector, (groups,), (groups,))
    moments = Moments(*(torch.zeros(shape, device=device, dtype=dtype) for shape in shapes))
    moments.unit.fill_(1)
    return moments


def update_moments(
    moments: Moments,
    features: Tensor,
    weights: Tensor | None,
    decay: Decay,
    reduce: Reduce | None = None,
    *,
    covariance: bool = True,
    fourth: bool = True,
    sketch: Tensor | None = None,
    rescale: bool = True,
    inplace: bool = False,
) -> Moments:
    """Add a batch to running moments; earlier samples count ``decay`` times what they did.

    The result is exactly the weighted mean and covariance of all samples seen (the drift between
    batches included), so the first batches need no separate bias correction. A sample of weight 0
    counts for nothing, whatever it holds, and so does a batch with another value that is not
    finite, or so large that sums might not be.

    Args:
        moments: what was known before.
        features: (N, d).
        weights: of each sample in each group, (G, N), or whether it counts; None for one each, in
            one group.
        decay: in [0, 1), or ``"auto"``, see :func:`remembered`.
        reduce: sums a tensor over all processes; omitted for one process.
        covariance: follow more than the mean.
        fourth: follow the third and fourth moments and the spread too, at some cost.
        sketch: of one group, keep the variances and the product of the covariance with this,
            (d, r), alone; it leaves no fourth moments.
        rescale: let the unit follow the samples, as it must for the first batch. Between two times
            a batch counts for nothing where it lies a million units from the mean.
        inplace: overwrite mass, mean and covariance of ``moments``.

    Example:
        >>> x = torch.tensor([[0.0], [2.0]])
        >>> update_moments(empty_moments(1, 1), x, None, 0.99).mean
        tensor([[1.]])
    """
    groups, width = moments.mean.shape
    counted = weights if weights is None or weights.dtype == torch.bool else weights > 0
    shifted = merging.deviations(features, moments.mean.unsqueeze(1), counted)
    if weights is None:
        weights = shifted.new_ones(shifted.shape[:2], dtype=torch.bool)
    elif weights.dtype != torch.bool:
        weights = weights.to(shifted.dtype)
    bound = merging.largest(shifted)
    limit: Tensor | float | None = None
    if covariance and not rescale:
        limit = merging.reach(moments.unit)
    if reduce is None:
        if limit is None:
            limit = torch.finfo(shifted.dtype).max / max(1, len(features)) ** 2
        finite = bound < limit
    else:
        sums = torch.cat([bound, *(part.flatten() for part in _sums(shifted, weights))])
        finite, sums = merging.only_finite(reduce(sums), limit)
        # A sum of the largest entries of all processes bounds them all: no second collective.
        bound, count, squares, total = sums.split([1, groups, groups, groups * width])
        total = total.view(groups, width)
    if rescale and covariance:
        variance = merging.variances(moments.covariance, sketch).amax()
        unit, ratio = merging.follow(moments.unit, variance, torch.where(finite, bound, 0))
        moments = _rescaled(moments, unit, ratio, fourth, inplace)
    shifted, weights = torch.where(finite, shifted, 0), weights * finite
    if reduce is None:
        count, squares, total = _sums(shifted, weights)
    kept = merging.remembered(decay, count, width if sketch is None else sketch.shape[1])
    step = merging.merge(moments.mass, weights, count, total, kept, inplace)
    mean = moments.mean.add_(step.shift) if inplace else moments.mean + step.shift
    merged = moments.but(mass=step.mass, mean=mean)
    if not covariance:
        return merged
    rows, past = merging.scatter_rows(shifted, step, moments.unit), step.keep.view(-1, 1, 1)
    if sketch is not None:
        past = moments.covariance.mul_(past) if inplace else past * moments.covariance
        if reduce is None:
            return merged.but(covariance=past + merging.scatter(rows[0], sketch))
        sums = reduce(merging.scatter(rows[0, :-1], sketch)) + merging.scatter(rows[0, -1:], sketch)
        return merged.but(covariance=past + sums)
    if reduce is None and not fourth:
        past = moments.covariance.mul_(past) if inplace else past * moments.covariance
        add = past.baddbmm_ if inplace else past.baddbmm
        return merged.but(covariance=add(rows.mT, rows))

    batch, drift = rows[:, :-1], rows[:, -1:]
    sums = batch.mT @ batch
    if fourth:
        centred = (shifted - step.shift[:, None]) / moments.unit
        distances = centred.square().sum(-1)
        shares = weights / step.divisor[:, None]
        third = (shares * distances)[:, None] @ centred
        quartic = (shares * distances.square()).sum(1)[:, None, None]
        sums = torch.cat([sums, third, quartic.expand(-1, 1, width)], dim=1)
    sums = sums if reduce is None else reduce(sums.contiguous())
    past = past * moments.covariance
    merged = merged.but(covariance=past + sums[:, :width] + drift.mT @ drift)
    if not fourth:
        return merged
    old = _about(moments, past, step)
    return merged.but(
        third=old[0] + sums[:, width],
        fourth=old[1] + sums[:, width + 1, 0],
        spread=step.keep**2 * moments.spread + squares / step.divisor / step.divisor,
    )


def _sums(shifted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the weights, (G,), of their squares, (G,), and of weighted samples, (G, d)."""
    if weights.dtype == torch.bool:  # samples that don't count are zero
        count = weights.sum(1, dtype=shifted.dtype)
        return count, count, shifted.sum(1)
    return weights.sum(1), weights.square().sum(1), (weights[:, None] @ shifted)[:, 0]


def _rescaled(
    moments: Moments, unit: Tensor, ratio: Tensor, fourth: bool, inplace: bool
) -> Moments:
    """The same moments in another unit, which the old one is ``ratio`` times as long as."""
    covariance, square = moments.covariance, ratio.square()
    covariance = covariance.mul_(square) if inplace else covariance * square
    if not fourth:
        return moments.but(unit=unit, covariance=covariance)
    return moments.but(
        unit=unit,
        covariance=covariance,
        third=moments.third * (ratio * square),
        fourth=moments.fourth * square.square(),
    )


def _about(moments: Moments, covariance: Tensor, step: Merge) -> tuple[Tensor, Tensor]:
    """Third and fourth moments of earlier samples about the new mean, times their share.

    ``covariance`` is theirs about the old mean, times their share.
    """
    by = step.shift / moments.unit
    third = step.keep[:, None] * moments.third
    square = by.square().sum(-1)
    variance = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    turned = (covariance @ by[..., None])[..., 0]
    fourth = step.keep * (moments.fourth + square**2)
    fourth = fourth + 4 * ((turned - third) * by).sum(-1) + 2 * variance * square
    return third - 2 * turned - (variance + step.keep * square)[:, None] * by, fourth
