"""Running mean and covariance of features, exact in any number of groups and at any magnitude."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from torchlace.functional.geometry import negligible

Reduce = Callable[[Tensor], Tensor]
Decay = float | Literal["auto"]

# What statistics rest on where the decay is automatic, at least.
_BATCHES, _SAMPLES_EACH = 100, 50


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
    groups: int, width: int, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Moments:
    """Moments of no samples.

    Example:
        >>> empty_moments(1, 3).mean
        tensor([[0., 0., 0.]])
    """
    vector, matrix = (groups, width), (groups, width, width)
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
    rescale: bool = True,
    inplace: bool = False,
) -> Moments:
    """Merge a batch: earlier samples count ``decay`` times what they did, the new ones ``weights``.

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
    shifted = deviations(features, moments.mean.unsqueeze(1), counted)
    if weights is None:
        weights = shifted.new_ones(shifted.shape[:2], dtype=torch.bool)
    elif weights.dtype != torch.bool:
        weights = weights.to(shifted.dtype)
    bound = largest(shifted)
    limit: Tensor | float | None = None
    if covariance and not rescale:
        limit = reach(moments.unit)
    if reduce is None:
        if limit is None:
            limit = torch.finfo(shifted.dtype).max / max(1, len(features)) ** 2
        finite = bound < limit
    else:
        sums = torch.cat([bound, *(part.flatten() for part in _sums(shifted, weights))])
        finite, sums = only_finite(reduce(sums), limit)
        # A sum of the largest entries of all processes bounds them all: no second collective.
        bound, count, squares, total = sums.split([1, groups, groups, groups * width])
        total = total.view(groups, width)
    if rescale and covariance:
        moments = _rescaled(moments, torch.where(finite, bound, 0), inplace)
    shifted, weights = torch.where(finite, shifted, 0), weights * finite
    if reduce is None:
        count, squares, total = _sums(shifted, weights)
    kept = remembered(decay, count, width)
    step = merge(moments.mass, weights, count, total, kept, inplace)
    mean = moments.mean.add_(step.shift) if inplace else moments.mean + step.shift
    merged = moments.but(mass=step.mass, mean=mean)
    if not covariance:
        return merged
    rows, past = scatter_rows(shifted, step, moments.unit), step.keep.view(-1, 1, 1)
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


class Merge(NamedTuple):
    """What a batch does to a running mean, of any number of groups (...)."""

    mass: Tensor
    """Decayed sum of sample weights, (...)."""
    divisor: Tensor
    """The mass as one may divide by it, (...)."""
    keep: Tensor
    """Share of the samples seen before, (...)."""
    roots: Tensor
    """Roots of the shares of the batch's samples and, as the last, of all before, (..., N + 1)."""
    shift: Tensor
    """How far the mean moves, (..., d)."""


def remembered(decay: Decay, count: Tensor, features: int) -> float | Tensor:
    """What the samples before a batch of ``count`` still count after it.

    Automatically it is .99, a memory of about 100 batches, or more where these hold fewer than 50
    samples for each of the ``features``: from few, the small eigenvalues come out too small.
    """
    if isinstance(decay, str):
        kept = torch.rsub(count, 1, alpha=1 / (_SAMPLES_EACH * features))
        return kept.clamp_min(1 - 1 / _BATCHES)
    return decay


def merge(
    mass: Tensor,
    weights: Tensor,
    count: Tensor,
    total: Tensor,
    decay: float | Tensor,
    inplace: bool = False,
) -> Merge:
    """Add samples of ``weights``, (..., N), that deviate from the mean by ``total``, (..., d).

    ``count`` is the sum of the weights in all processes. Without samples nothing moves and all is
    kept, even where the mass has decayed to nothing.
    """
    out = mass if inplace else None
    if isinstance(decay, Tensor):
        mass = torch.addcmul(count, mass, decay, out=out)
    else:
        mass = torch.add(count, mass, alpha=decay, out=out)
    divisor = mass.clamp_min(torch.finfo(total.dtype).tiny)
    keep, column = torch.rsub(count / divisor, 1), divisor.unsqueeze(-1)
    roots = torch.cat([weights / column, keep.unsqueeze(-1)], dim=-1).sqrt()
    return Merge(mass, divisor, keep, roots, total / column)


def scatter_rows(shifted: Tensor, step: Merge, unit: Tensor) -> Tensor:
    """Rows (..., N + 1, d) whose products the batch adds to the covariance.

    They are the samples about the new mean, and as the last how far the old mean lies from it: no
    covariance is ever a difference of large numbers.

    Args:
        shifted: samples about the old mean, (..., N, d).
        step: what the batch does to the mean.
        unit: the length in whose square covariances are kept, (1,).
    """
    shift = step.shift.unsqueeze(-2)
    return torch.cat([shifted - shift, shift], dim=-2) * (step.roots / unit).unsqueeze(-1)


def follow(unit: Tensor, variance: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """The unit that suits a covariance and a batch, and the old one in its terms.

    It stays where what they hold counts as zero: a whitening in smaller units would be infinite.

    Args:
        unit: the unit so far, (1,).
        variance: the largest variance, in units squared, ().
        bound: the largest deviation in the batch, (1,).
    """
    # It falls by no more than a square can bear at once.
    faded = torch.where(variance > 0, unit * variance.sqrt().clamp_min(1e-3), 0)
    new = torch.maximum(faded, bound)
    new = torch.where(new > negligible(new.dtype), new, unit)
    return new, (unit / new).clamp_max(1e3)


def reach(unit: Tensor) -> Tensor:
    """How far a sample may lie from the mean, (1,): fourth powers and their sums stay finite."""
    return unit * float(torch.finfo(unit.dtype).max ** (1 / 6))


def deviations(features: Tensor, mean: Tensor, counted: Tensor | None) -> Tensor:
    """Features less their mean, 0 for samples that don't count, whatever those hold.

    A selection, where a product would let NaN and infinity through; no row is left out, which would
    make the host wait.
    """
    if counted is not None:
        features = torch.where(counted.unsqueeze(-1), features, mean)
    return features - mean


def only_finite(sums: Tensor, limit: Tensor | float | None) -> tuple[Tensor, Tensor]:
    """Whether a batch counts, (1,), and its sums, or zeros in their place.

    It does if they are finite, and the first of them, its largest deviation, within ``limit``.
    """
    finite = largest(sums) < torch.inf
    if limit is not None:
        finite = finite & (sums[:1] < limit)
    return finite, torch.where(finite, sums, 0)


def largest(values: Tensor) -> Tensor:
    """The largest absolute entry of all, (1,); 0 of none, NaN where there is one."""
    if values.numel() == 0:
        return values.new_zeros(1)
    size: Tensor = torch.linalg.vector_norm(values, ord=torch.inf)
    return size.reshape(1)


def _sums(shifted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the weights, (G,), of their squares, (G,), and of weighted samples, (G, d)."""
    if weights.dtype == torch.bool:  # samples that don't count are zero
        count = weights.sum(1, dtype=shifted.dtype)
        return count, count, shifted.sum(1)
    return weights.sum(1), weights.square().sum(1), (weights[:, None] @ shifted)[:, 0]


def _rescaled(moments: Moments, bound: Tensor, inplace: bool) -> Moments:
    """The same moments in a unit that suits a batch of deviations up to ``bound`` too."""
    variance = moments.covariance.diagonal(dim1=-2, dim2=-1).amax()
    unit, ratio = follow(moments.unit, variance, bound)
    covariance, square = moments.covariance, ratio.square()
    return moments.but(
        unit=unit,
        covariance=covariance.mul_(square) if inplace else covariance * square,
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
