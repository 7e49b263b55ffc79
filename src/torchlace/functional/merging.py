"""What running moments of all kinds share: which batches count, and how one is merged."""

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
    covariance is ever a difference of large numbers. ``shifted`` are samples about the old mean,
    (..., N, d), and ``unit`` is the length in whose square covariances are kept, (1,).
    """
    shift = step.shift.unsqueeze(-2)
    return torch.cat([shifted - shift, shift], dim=-2) * (step.roots / unit).unsqueeze(-1)


def follow(unit: Tensor, variance: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """The unit that suits a covariance and a batch, and the old one in its terms.

    It stays where what they hold counts as zero: a whitening in smaller units would be infinite.
    Given are the largest variance, in units squared, (), and deviation in the batch, (1,).
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


def scatter(rows: Tensor, sketch: Tensor | None, others: Tensor | None = None) -> Tensor:
    """RowsᵀRows, or its diagonal beside its product with a sketch, (d, 1 + r).

    With ``others``, as many, it is RowsᵀOthers.
    """
    others = rows if others is None else others
    if sketch is None:
        return rows.mT @ others
    return torch.cat([(rows * others).sum(0)[:, None], rows.mT @ (others @ sketch)], dim=1)


def variances(covariance: Tensor, sketch: Tensor | None) -> Tensor:
    """The diagonal of a covariance, or of one that a sketch stands for, (..., d)."""
    return covariance[..., 0] if sketch is not None else covariance.diagonal(dim1=-2, dim2=-1)
