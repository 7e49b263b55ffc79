"""What samples are labelled with: class indices, class probabilities, or two labels and a weight.

A target says which share t_nc of sample n belongs to class c. An index is the share 1 of one class.
So that a soft target with all of its share in one class gives what its index gives, bit for bit,
the largest share of a sample is summed as an index is, and the others are added to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from torchlace._checks import (
    check_mixing,
    check_probabilities,
    check_target_shape,
    check_targets,
)


class Mixed(NamedTuple):
    """Two labels for each sample, as mixup and CutMix need them, for any number of classes.

    Example:
        >>> import torchlace as tl
        >>> head, features = tl.Softmax(4, 3), torch.randn(2, 4)
        >>> first, second = torch.tensor([0, 1]), torch.tensor([1, 2])
        >>> mixed = head.loss(features, tl.Mixed(first, second, 0.75))
        >>> shares = torch.tensor([[0.75, 0.25, 0.0], [0.0, 0.75, 0.25]])
        >>> torch.allclose(mixed, head.loss(features, shares))
        True
    """

    first: Tensor
    """Class indices, (N,)."""
    second: Tensor
    """Class indices, (N,)."""
    weight: Tensor | float
    """Share of the first label, in [0, 1]: one number, or one for each sample, (N,)."""


Targets = Tensor | Mixed
"""Class indices (N,), class probabilities (N, C) of floating point, or two labels and a weight."""


def check_labels(
    targets: Targets, shape: tuple[int, ...], classes: int, ignore_index: int = -100
) -> None:
    """Raise unless ``targets`` label samples of this shape, where values are looked at."""
    if isinstance(targets, Mixed):
        for labels in targets[:2]:
            check_targets(labels, shape, classes, ignore_index)
        check_mixing(targets.weight, shape)
    elif is_dense(targets) and targets.dim() == len(shape) + 1:
        check_probabilities(targets, (*shape, classes))
    else:
        check_targets(targets, shape, classes, ignore_index)


def check_target_kind(targets: Targets, rows: int, classes: int | None) -> None:
    """Raise unless ``targets`` have the shape and type of labels of this many rows."""
    if isinstance(targets, Mixed):
        for labels in targets[:2]:
            check_target_shape(labels, rows)
    elif not is_dense(targets):
        check_target_shape(targets, rows)
    elif targets.dim() != 2 or len(targets) != rows or classes not in (None, targets.shape[1]):
        raise ValueError(
            f"targets that are class probabilities must have shape ({rows}, {classes or 'C'}), got "
            f"{tuple(targets.shape)}"
        )


def is_dense(targets: Targets) -> TypeGuard[Tensor]:
    """Whether targets are class probabilities."""
    return isinstance(targets, Tensor) and targets.is_floating_point()


def in_rows(targets: Targets, dtype: torch.dtype, ignore_index: int) -> Targets:
    """Targets one below the other, in the types to compute with.

    A mixed sample one of whose labels is ignored is ignored; the larger share comes first, and is 1
    of equal labels: they are one label.
    """
    if isinstance(targets, Mixed):
        first, second = (labels.long().flatten() for labels in targets[:2])
        weight = targets.weight
        if isinstance(weight, Tensor):
            weight = weight.to(dtype).expand(targets.first.shape).flatten()
        else:
            weight = first.new_full(first.shape, weight, dtype=dtype)
        counted = (first != ignore_index) & (second != ignore_index)
        first, second = (torch.where(counted, part, ignore_index) for part in (first, second))
        ordered = weight >= 0.5
        larger, smaller = torch.where(ordered, first, second), torch.where(ordered, second, first)
        weight = torch.where(ordered, weight, 1 - weight)
        return Mixed(larger, smaller, torch.where(first == second, 1, weight))
    if is_dense(targets):
        return targets.to(dtype).flatten(0, -2)
    return targets.long().flatten()  # -100 as uint8 would be class 156


def unlabelled(targets: Targets, ignore_index: int) -> Targets:
    """Targets with a negative label for samples without a class."""
    if isinstance(targets, Mixed):
        first, second = (_negative(labels, ignore_index) for labels in targets[:2])
        return Mixed(first, second, targets.weight)
    return targets if is_dense(targets) else _negative(targets, ignore_index)


def labelled(targets: Targets) -> Tensor:
    """Which samples have a class, (N,)."""
    if isinstance(targets, Mixed):
        return (targets.first >= 0) & (targets.second >= 0)
    if is_dense(targets):
        return torch.ones_like(targets[:, 0], dtype=torch.bool)
    return targets >= 0


def dominant(targets: Targets) -> Tensor:
    """The label with the largest share, (N,), of targets :func:`in_rows`."""
    if isinstance(targets, Mixed):
        return targets.first
    return targets.argmax(dim=1) if is_dense(targets) else targets


def averaged(of_label: Callable[[Tensor], Tensor], targets: Mixed) -> Tensor:
    """What a function gives for both labels, weighed by their shares, (N, ...)."""
    first, second = of_label(targets.first), of_label(targets.second)
    return torch.lerp(second, first, _column(targets.weight, first))


def shares(targets: Targets, classes: int, dtype: torch.dtype) -> Tensor:
    """t_nc, (N, C), 0 where a sample has no class."""
    if is_dense(targets):
        return targets.to(dtype)
    labels = targets.first if isinstance(targets, Mixed) else targets
    index = torch.arange(classes, device=labels.device)
    first = (labels[:, None] == index).to(dtype)
    if not isinstance(targets, Mixed):
        return first
    second = (targets.second[:, None] == index).to(dtype)
    weight = _column(targets.weight, first)
    return (first * weight + second * (1 - weight)) * labelled(targets)[:, None]


def selected(table: Tensor, targets: Targets) -> Tensor:
    """Σ_c t_nc · table_c, (N, d), of a (C, d) table; that of class 0 where there is no class."""
    if isinstance(targets, Mixed):
        return averaged(lambda labels: table[labels.clamp_min(0)], targets)
    if is_dense(targets):
        return targets @ table
    return table[targets.clamp_min(0)]


def counts(targets: Targets, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Σ_n t_nc and Σ_n t_nc², (C,) each."""
    if is_dense(targets):
        return targets.sum(0), targets.square().sum(0)
    known = labelled(targets).to(dtype)
    zeros = known.new_zeros(classes)
    if not isinstance(targets, Mixed):
        count = zeros.index_add(0, targets.clamp_min(0), known)
        return count, count
    first, second = (labels.clamp_min(0) for labels in targets[:2])
    own, other = known * targets.weight, known * (1 - targets.weight)
    return (
        zeros.index_add(0, first, own).index_add_(0, second, other),
        zeros.index_add(0, first, own.square()).index_add_(0, second, other.square()),
    )


def add_shares(
    sums: Tensor, values: Tensor, targets: Targets, divisor: Tensor | None = None
) -> Tensor:
    """Add Σ_n t_nc · values_n / divisor_c to each of C sums, in place.

    The values, (N, d), are 0 where there is no class.
    """

    def add(labels: Tensor, weight: Tensor | None) -> None:
        label = labels.clamp_min(0)
        part = values if divisor is None else values / divisor[label, None]
        sums.index_add_(0, label, part if weight is None else part * weight[:, None])

    if isinstance(targets, Mixed):
        weight = _column(targets.weight, values[:, 0])
        add(targets.first, weight)
        add(targets.second, 1 - weight)
    elif is_dense(targets):
        largest, label = targets.max(dim=1, keepdim=True)
        add(label[:, 0], largest[:, 0])
        others = targets.scatter(1, label, 0).mT @ values
        sums.add_(others if divisor is None else others / divisor[:, None])
    else:
        add(targets, None)
    return sums


def scatter_between(table: Tensor, targets: Targets) -> Tensor | None:
    """Σ_n t_nc · (table_c - Σ_k t_nk · table_k), (C, d): what samples' own classes differ by.

    It is None of indices. Multiplied by the table from the left, it is the scatter of the classes
    of each sample about their mean.
    """
    if isinstance(targets, Mixed):
        first, second = (labels.clamp_min(0) for labels in targets[:2])
        weight = _column(targets.weight, table) * labelled(targets)[:, None]
        apart = (weight * (1 - weight)) * (table[first] - table[second])
        return torch.zeros_like(table).index_add_(0, first, apart).index_add_(0, second, -apart)
    if is_dense(targets):
        products = targets.mT @ targets
        return (targets.sum(0).diag_embed() - products) @ table
    return None


def _column(weight: Tensor | float, like: Tensor) -> Tensor:
    """Weights of samples beside (N, ...) values."""
    if not isinstance(weight, Tensor):
        return like.new_full((), weight)
    weight = weight.to(like.dtype)
    return weight.view(-1, *[1] * (like.dim() - 1)) if weight.dim() else weight


def _negative(labels: Tensor, ignore_index: int) -> Tensor:
    return labels if ignore_index < 0 else torch.where(labels == ignore_index, -1, labels)
