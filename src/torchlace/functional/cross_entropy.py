"""Cross-entropy with margins, dense or in chunks of classes that never store the N × C logits.

A margin changes the logit of the true class only. So the loss needs three numbers a sample: the
log-sum-exp of the other classes' logits, the logit of the true class (which the margin then
changes), and, for label smoothing, the weighted sum of all logits. The chunked path computes these,
and their gradients, a slice of the classes at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace.functional.geometry import row_lengths

Margin = Callable[[Tensor], Tensor]

_SUM = 2  # torch's number for reduction="sum"


def cross_entropy(
    logits: Tensor,
    targets: Tensor,
    *,
    margin: Margin | None = None,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "none",
) -> Tensor:
    """Cross-entropy of every sample, (N,), the true class's logit passed through ``margin`` first.

    ``reduction`` is that of :func:`reduce`.

    Example:
        >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2]), margin=lambda logit: logit - 1)
        tensor([2.2143])
    """
    if margin is not None:
        index = _known(targets, ignore_index)[:, None]
        logits = logits.scatter(1, index, margin(logits.gather(1, index)))
    if reduction == "mean" and weight is None and not label_smoothing and _wide(logits):
        # One operation gives the sum and the number of samples, where apart they take four.
        likelihoods = torch.log_softmax(logits, dim=1)
        summed = torch.ops.aten.nll_loss_forward.default
        total, count = summed(likelihoods, targets, None, _SUM, ignore_index)
        mean: Tensor = total / count.clamp_min(1)
        return mean
    losses = F.cross_entropy(
        logits,
        targets,
        weight=weight,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
        reduction="none",
    )
    return reduce(losses, targets, reduction, weight=weight, ignore_index=ignore_index)


def chunked_cross_entropy(
    features: Tensor,
    class_vectors: Tensor,
    targets: Tensor,
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
        targets: class indices, (N,).
        bias: (C,).
        normalize: scale the class vectors to length one, slice by slice.
        margin: what happens to the true class's logit.
        weight: class weights, (C,).
        label_smoothing: as in :func:`torch.nn.functional.cross_entropy`.
        ignore_index: as in :func:`torch.nn.functional.cross_entropy`.
        reduction: as in :func:`reduce`.
        chunk: classes in a slice.

    Example:
        >>> x, w, y = torch.randn(5, 3), torch.randn(7, 3), torch.arange(5)
        >>> torch.allclose(chunked_cross_entropy(x, w, y, chunk=2), cross_entropy(x @ w.T, y))
        True
    """
    known = _known(targets, ignore_index)
    classes = len(class_vectors)
    mixture = features.new_ones(classes) if weight is None else weight.to(features.dtype)
    others, target, total = split_logits(
        features,
        class_vectors,
        known,
        bias=bias,
        mixture=mixture if label_smoothing else None,
        normalize=normalize,
        chunk=chunk,
    )
    changed = target if margin is None else margin(target)
    normalizer = torch.logaddexp(others, changed)
    losses = (normalizer - changed) * mixture[known]
    if label_smoothing:
        spread = normalizer * mixture.sum() - total - mixture[known] * (changed - target)
        losses = (1 - label_smoothing) * losses + label_smoothing / classes * spread
    losses = torch.where(targets == ignore_index, 0, losses)
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


def reduce(
    losses: Tensor,
    targets: Tensor,
    reduction: str,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Mean, sum or none of per-sample losses, as cross-entropy does it.

    The mean divides by the summed class weights of the samples that count. Where none counts (an
    empty batch, all ignored, or weights that sum to nothing) it is 0, where
    :func:`torch.nn.functional.cross_entropy` has NaN.

    Example:
        >>> reduce(torch.tensor([1.0, 0.0]), torch.tensor([0, -100]), "mean")
        tensor(1.)
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    counted = targets.long() != ignore_index
    if weight is None:
        return losses.sum() / counted.sum().clamp_min(1)
    mass = torch.where(counted, weight.to(losses.dtype)[_known(targets, ignore_index)], 0).sum()
    return losses.sum() / torch.where(mass >= torch.finfo(mass.dtype).tiny, mass, 1)


def _wide(logits: Tensor) -> bool:
    """Whether autocast would leave the type as it is."""
    return logits.dtype in (torch.float32, torch.float64)


def _known(targets: Tensor, ignore_index: int) -> Tensor:
    targets = targets.long()
    return torch.where(targets == ignore_index, 0, targets)


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
        target, total = torch.zeros_like(others), torch.zeros_like(others)
        for start in range(0, len(class_vectors), chunk):
            part = slice(start, start + chunk)
            vectors, _ = _directions(class_vectors[part], normalize)
            logits = features @ vectors.mT if bias is None else features @ vectors.mT + bias[part]
            if mixture is not None:
                total += logits @ mixture[part]
            inside, index = _inside(targets, start, len(vectors))
            value = logits.gather(1, index)
            target = torch.where(inside, value[:, 0], target)
            logits.scatter_(1, index, value.masked_fill(inside[:, None], -torch.inf))
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
            value = slopes.gather(1, index)
            slopes.scatter_(1, index, torch.where(inside[:, None], of_target[:, None], value))
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
    local = targets - start
    return (local >= 0) & (local < count), local.clamp(0, count - 1)[:, None]
