"""Running means of classes and the covariance within them, exact and linear in the classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from torchlace.functional import merging
from torchlace.functional.merging import Decay, Reduce
from torchlace.functional.targets import (
    Targets,
    add_shares,
    counts,
    in_rows,
    is_dense,
    labelled,
    scatter_between,
    selected,
)


class ClassMoments(NamedTuple):
    """Running means of C classes and the covariance within them, earlier samples counting less.

    The covariance is kept in units of ``unit`` squared, as :class:`Moments` keeps it.
    """

    mass: Tensor
    """Decayed number of samples of each class, (C,)."""
    squares: Tensor
    """Decayed sum of the squared weights of these samples, (C,)."""
    mean: Tensor
    """Of each class, (C, d); zero where none was seen."""
    within: Tensor
    """Mean over all samples of the square about their class's mean, divided by unit², (d, d); or
    in its place what a sketch keeps of it, (d, 1 + r), the variances first."""
    unit: Tensor
    """A common length, (1,); 1 until anything but zeros was seen."""


def empty_class_moments(
    classes: int,
    width: int,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
    *,
    sketch: Tensor | None = None,
) -> ClassMoments:
    """Moments of no samples; ``sketch`` as in :func:`update_class_moments`.

    Example:
        >>> empty_class_moments(2, 3).mean.shape
        torch.Size([2, 3])
    """
    columns = width if sketch is None else 1 + sketch.shape[1]
    shapes = ((classes,), (classes,), (classes, width), (width, columns), (1,))
    moments = ClassMoments(*(torch.zeros(shape, device=device, dtype=dtype) for shape in shapes))
    moments.unit.fill_(1)
    return moments


def update_class_moments(
    moments: ClassMoments,
    features: Tensor,
    targets: Targets,
    decay: Decay,
    reduce: Reduce | None = None,
    *,
    covariance: bool = True,
    sketch: Tensor | None = None,
    rescale: bool = True,
    inplace: bool = False,
) -> ClassMoments:
    """Add a batch to running class moments; earlier samples count ``decay`` times what they did.

    The result is exactly the weighted means and the weighted covariance about them of all samples
    seen, each of which counts for a class as much as its target says. Samples of a negative label
    count for nothing, and so does a batch with a value that is not finite.

    Args:
        moments: what was known before.
        features: (N, d).
        targets: class of each sample, (N,), or its soft target.
        decay: as in :func:`update_moments`.
        reduce: likewise; C × (d + 2) numbers are summed over the processes.
        covariance: follow more than the means.
        sketch: keep the variances and the product of the covariance with this, (d, r), alone.
        rescale: let the unit follow the samples.
        inplace: overwrite ``moments``.

    Example:
        >>> x, y = torch.tensor([[0.0], [2.0], [7.0]]), torch.tensor([0, 0, 1])
        >>> found = update_class_moments(empty_class_moments(2, 1), x, y, 0.99)
        >>> found.mean.flatten(), found.within * found.unit**2  # two of three samples vary by 1
        (tensor([1., 7.]), tensor([[0.6667]]))
    """
    classes, targets = len(moments.mass), in_rows(targets, moments.mass.dtype, -1)
    alone = isinstance(targets, Tensor) and not is_dense(targets)
    known, before = labelled(targets), selected(moments.mean, targets)
    shifted = merging.deviations(features, before, known)
    bound = merging.largest(shifted)
    limit: Tensor | float | None = None
    if covariance and not rescale:
        limit = merging.reach(moments.unit)
    elif reduce is None:
        limit = torch.finfo(shifted.dtype).max / max(1, len(features)) ** 2
    count, squares = counts(targets, classes, shifted.dtype)
    total, apart = None, scatter_between(moments.mean, targets)
    if reduce is None and alone:
        assert limit is not None
        finite = bound < limit
        count = squares = count * finite
    else:
        parts = [bound, count, squares]
        if reduce is not None:
            total = add_shares(torch.zeros_like(moments.mean), shifted, targets)
            total = total if apart is None else total - apart
            parts.append(total.flatten())
        sums = torch.cat(parts)
        finite, sums = merging.only_finite(sums if reduce is None else reduce(sums), limit)
        bound, count, squares, rest = sums.split([1, classes, classes, len(sums) - 1 - 2 * classes])
        total = None if total is None else rest.view_as(total)
    shifted = torch.where(finite, shifted, 0)
    width = features.shape[1] if sketch is None else sketch.shape[1]
    kept = merging.remembered(decay, count.sum(), width)
    mass = moments.mass * kept + count
    divisor = mass.clamp_min(torch.finfo(mass.dtype).tiny)
    merged = moments._replace(mass=mass, squares=moments.squares * kept * kept + squares)
    old = moments.mean if alone else moments.mean.clone()
    mean = moments.mean if inplace else moments.mean.clone()
    if total is not None:
        mean.add_(total / divisor[:, None])
    else:  # a product with all C × d means would cost more than the samples do
        add_shares(mean, shifted, targets, divisor)
        if apart is not None:
            mean.sub_(torch.where(finite, apart, 0) / divisor[:, None])
    merged = merged._replace(mean=mean)
    if not covariance:
        return merged
    within, length = moments.within, moments.unit
    everyone = mass.sum().clamp_min(torch.finfo(mass.dtype).tiny)
    past = 1 - count.sum() / everyone
    if rescale:
        most = merging.variances(within, sketch).amax()
        length, ratio = merging.follow(length, most, torch.where(finite, bound, 0))
        past = past * ratio.square()
    # Between the old mean and the new one there is a point about which the samples of the batch
    # alone have the square that both have together: no term for the drift of the means.
    part = (1 / (1 + (1 - count / divisor).clamp_min(0).sqrt()))[:, None]
    share = 1 / (length * everyone.sqrt())
    between = None
    if alone:
        own = targets.clamp_min(0)  # type: ignore[union-attr]
        rows = shifted - (mean[own] - before) * part[own]
    else:
        # A sample lies about the mean of its classes' points, and these about it.
        moved = (mean - old) * part
        rows = shifted - selected(moved, targets)
        points = old + moved
        points = (points - count / count.sum().clamp_min(1) @ points) * (share * finite)
        apart = scatter_between(points, targets)
        assert apart is not None
        between = merging.scatter(points, sketch, apart)
    rows = rows * (known * share)[:, None]
    past = within.mul_(past) if inplace else within * past
    if reduce is None and sketch is None:
        within = past.addmm_(rows.mT, rows) if inplace else past.addmm(rows.mT, rows)
        within = within if between is None else within.add_(between)
    else:
        products = merging.scatter(rows, sketch)
        products = products if between is None else products + between
        within = past + (products if reduce is None else reduce(products))
    return merged._replace(within=within, unit=length)


class Signal(NamedTuple):
    """What classes differ by, and what samples of one class do."""

    within: Tensor
    """Covariance within classes, corrected for the means being of the same samples, (d, d); of a
    sketch, (d, 1 + r)."""
    between: Tensor
    """Variance between the class means in each of the K - 1 directions they span, ()."""


def signal(moments: ClassMoments, sketch: Tensor | None = None) -> Signal:
    """The covariance within classes and the signal between them, in units of ``moments.unit``².

    From few samples of a class, its mean is near them: plain averages make the covariance within
    too small, by the share of samples that the means use up, and take noise of the means for
    signal. The first is corrected exactly. From the second what chance alone would show is
    subtracted, but no less is left than that: a signal that can't be told from noise counts as
    noise. K is the number of classes seen; of one, or none, the signal is zero.

    Example:
        >>> x = torch.tensor([[-1.0, 9.0], [1.0, 9.0], [-1.0, 1.0], [1.0, 1.0]])
        >>> y = torch.tensor([0, 0, 1, 1])
        >>> found = signal(update_class_moments(empty_class_moments(2, 2), x, y, 0.99))
        >>> (found.between / found.within[0, 0]).item()  # variances 16 - 0.5 and 2
        7.75
    """
    mass, squares = moments.mass, moments.squares
    tiny = torch.finfo(mass.dtype).tiny
    everyone = mass.sum().clamp_min(tiny)
    seen = mass > 0
    shares = mass / everyone
    offsets = (moments.mean - shares @ moments.mean) / moments.unit
    plain = (shares * offsets.square().sum(1)).sum()
    # Of each class, what one sample counts among all of them: 1 over their effective number.
    each = squares / mass.clamp_min(tiny) / everyone
    freedom = 1 - each.sum()
    within = moments.within / torch.where(freedom > torch.finfo(mass.dtype).eps, freedom, 1)
    more = (each.sum() - squares.sum() / everyone**2).clamp_min(0)
    chance = merging.variances(within, sketch).sum() * more
    between = torch.minimum(plain, torch.maximum(plain - chance, chance))
    return Signal(within, between / (seen.sum() - 1).clamp_min(1))
