"""Cross-entropy in chunks of classes, which never stores the N × C logits.

A margin changes the logit of the true class only. So the loss needs three numbers a sample: the
log-sum-exp of the other classes' logits, the logit of the true class (which the margin then
changes), and, for label smoothing, the weighted sum of all logits. These, and their gradients, are
computed a slice of the classes at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchlace.functional.cross_entropy import Margin, counted, reduce
from torchlace.functional.geometry import row_lengths
from torchlace.functional.targets import Mixed, Targets, in_rows


def chunked_cross_entropy(
    features: Tensor,
    class_vectors: Tensor,
    targets: Targets,
    *,
    bias: Tensor | None = None,
    normalize: bool = False,
    margin: Margin | None = None,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "none",
    chunk: int = 8192,
) -> Tensor:
    """:func:`cross_entropy` of ``features @ class_vectors.T + bias``, ``chunk`` classes at a time.

    Same values and gradients up to rounding; memory grows with N × chunk instead of N × C, at the
    price of computing the logits a second time in the backward pass. Differentiable once.

    Args:
        features: (N, d); a scale is multiplied in beforehand.
        class_vectors: (C, d).
        targets: class indices, (N,), or :class:`Mixed`.
        bias: (C,).
        normalize: scale the class vectors to length one, slice by slice.
        margin: what happens to the true class's logit.
        weight: class weights, (C,).
        label_smoothing: as in :func:`torch.nn.functional.cross_entropy`.
        ignore_index: as in :func:`torch.nn.functional.cross_entropy`.
        reduction: as in :func:`reduce`.
        chunk: classes in a slice.

    Example:
        >>> from torchlace.functional import cross_entropy
        >>> x, w, y = torch.randn(5, 3), torch.randn(7, 3), torch.arange(5)
        >>> torch.allclose(chunked_cross_entropy(x, w, y, chunk=2), cross_entropy(x @ w.T, y))
        True
    """
    targets = in_rows(targets, features.dtype, ignore_index)
    pair = isinstance(targets, Mixed)
    labels = torch.stack(targets[:2], dim=1) if isinstance(targets, Mixed) else targets
    if labels.is_floating_point():
        raise ValueError(
            "class probabilities have no form in chunks: leave out the chunk, or give two labels "
            "and a weight, Mixed(first, second, weight)"
        )
    known = torch.where(labels == ignore_index, 0, labels)
    classes = len(class_vectors)
    mixture = features.new_ones(classes) if weight is None else weight.to(features.dtype)
    others, own, total = split_logits(
        features,
        class_vectors,
        known,
        bias=bias,
        mixture=mixture if label_smoothing else None,
        normalize=normalize,
        chunk=chunk,
    )

    def of_label(label: Tensor, target: Tensor, others: Tensor) -> Tensor:
        changed = target if margin is None else margin(target)
        normalizer = torch.logaddexp(others, changed)
        losses = (normalizer - changed) * mixture[label]
        if not label_smoothing:
            return losses
        spread = normalizer * mixture.sum() - total - mixture[label] * (changed - target)
        return (1 - label_smoothing) * losses + label_smoothing / classes * spread

    if pair:
        same = known[:, 0] == known[:, 1]
        parts = [
            of_label(
                known[:, i],
                own[:, i],
                torch.where(same, others, torch.logaddexp(others, own[:, 1 - i])),
            )
            for i in (0, 1)
        ]
        losses = torch.lerp(parts[1], parts[0], targets.weight)  # type: ignore[union-attr]
    else:
        losses = of_label(known, own, others)
    losses = torch.where(counted(targets, ignore_index), losses, 0)
    return reduce(losses, targets, reduction, weight=weight, ignore_index=ignore_index)


def split_logits(
    features: Tensor,
    class_vectors: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    mixture: Tensor | None = None,
    normalize: bool = False,
    chunk: int = 8192,
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-sum-exp of the other classes' logits, logit of the target, ``mixture``·logits; each (N,).

    Of K targets for each sample, (N, K), the others are all but these, and there are K logits.

    Example:
        >>> others, target, _ = split_logits(torch.ones(1, 1), torch.zeros(3, 1), torch.tensor([0]))
        >>> others, target  # ln 2: two other classes at logit 0
        (tensor([0.6931]), tensor([0.]))
    """
    # vmap takes no function with a backward pass of its own, which nobody needs without gradients.
    compute = _Chunked.apply if torch.is_grad_enabled() else _Chunked.forward
    parts: tuple[Tensor, Tensor, Tensor] = compute(
        features, class_vectors, bias, targets, mixture, normalize, chunk
    )
    return parts


class _Chunked(torch.autograd.Function):
    """(log-sum-exp over other classes, target logit, mixture-weighted sum of logits), each (N,)."""

    @staticmethod
    def forward(
        features: Tensor,
        class_vectors: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        mixture: Tensor | None,
        normalize: bool,
        chunk: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # A finite floor instead of -inf keeps a single class from making inf - inf.
        others = features.new_full((features.shape[0],), torch.finfo(features.dtype).min)
        target, total = features.new_zeros(targets.shape), torch.zeros_like(others)
        for start in range(0, len(class_vectors), chunk):
            part = slice(start, start + chunk)
            vectors, _ = _directions(class_vectors[part], normalize)
            logits = features @ vectors.mT if bias is None else features @ vectors.mT + bias[part]
            if mixture is not None:
                total += logits @ mixture[part]
            inside, index = _inside(targets, start, len(vectors))
            value = logits.gather(1, index)
            target = torch.where(inside, value, target.view_as(value)).view_as(targets)
            _overwrite(logits, inside, index, -torch.inf)
            others = torch.logaddexp(others, torch.logsumexp(logits, dim=1))
        return others, target, total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.normalize, ctx.chunk = inputs
        ctx.save_for_backward(*tensors, output[0])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, of_others: Tensor, of_target: Tensor, of_total: Tensor
    ) -> tuple[Tensor | None, ...]:
        features, class_vectors, bias, targets, mixture, others = ctx.saved_tensors
        to_features, to_vectors = torch.zeros_like(features), torch.empty_like(class_vectors)
        to_bias = None if bias is None else torch.empty_like(bias)
        for start in range(0, len(class_vectors), ctx.chunk):
            part = slice(start, start + ctx.chunk)
            vectors, lengths = _directions(class_vectors[part], ctx.normalize)
            logits = features @ vectors.mT if bias is None else features @ vectors.mT + bias[part]
            slopes = logits.sub_(others[:, None]).exp_().mul_(of_others[:, None])
            inside, index = _inside(targets, start, len(vectors))
            _overwrite(slopes, inside, index, 0)
            slopes.scatter_add_(1, index, torch.where(inside, of_target.view_as(index), 0))
            if mixture is not None:
                slopes.addr_(of_total, mixture[part])
            to_features.addmm_(slopes, vectors)
            slope = slopes.mT @ features
            if ctx.normalize:
                slope.sub_((slope * vectors).sum(-1, keepdim=True) * vectors).div_(lengths)
            to_vectors[part] = slope
            if to_bias is not None:
                to_bias[part] = slopes.sum(0)
        return to_features, to_vectors, to_bias, None, None, None, None


def _directions(vectors: Tensor, normalize: bool) -> tuple[Tensor, Tensor]:
    """The vectors as they enter the logits, and their lengths (1 for zero vectors)."""
    if not normalize:
        return vectors, vectors.new_ones(())
    lengths = row_lengths(vectors)
    return vectors / lengths, lengths


def _inside(targets: Tensor, start: int, count: int) -> tuple[Tensor, Tensor]:
    """Which targets lie in a slice of classes, and where, (N, K); elsewhere somewhere in it."""
    local = (targets if targets.dim() == 2 else targets[:, None]) - start
    return (local >= 0) & (local < count), local.clamp(0, count - 1)


def _overwrite(table: Tensor, inside: Tensor, index: Tensor, value: float) -> None:
    """Write a value at the targets inside, one after the other: others point somewhere, too."""
    for one, there in zip(index.split(1, dim=1), inside.split(1, dim=1), strict=True):
        table.scatter_(1, one, table.gather(1, one).masked_fill(there, value))
