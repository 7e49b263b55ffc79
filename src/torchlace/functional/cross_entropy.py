"""Cross-entropy with margins, of class indices and soft targets, and what its reductions mean."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace.functional.targets import (
    Mixed,
    Targets,
    averaged,
    in_rows,
    is_dense,
    labelled,
    selected,
    unlabelled,
)

Margin = Callable[[Tensor], Tensor]

_SUM = 2  # torch's number for reduction="sum"


def cross_entropy(
    logits: Tensor,
    targets: Targets,
    *,
    margin: Margin | None = None,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    reduction: str = "none",
) -> Tensor:
    """Cross-entropy of every sample, (N,), the true class's logit passed through ``margin`` first.

    The loss of a soft target is the mean of the losses of its labels, each with the margin on its
    own class, weighed by their shares. ``reduction`` is that of :func:`reduce`.

    Example:
        >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2]), margin=lambda logit: logit - 1)
        tensor([2.2143])
    """

    def of_label(labels: Tensor) -> Tensor:
        """The loss where each sample has one label."""
        return F.cross_entropy(
            _with_margin(logits, labels, margin, ignore_index),
            labels,
            weight=weight,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
            reduction="none",
        )

    # One operation gives the sum and the number of samples, where apart they take four; in types
    # that autocast would leave as they are.
    wide = logits.dtype in (torch.float32, torch.float64)
    at_once = reduction == "mean" and weight is None and not label_smoothing and wide
    if isinstance(targets, Mixed):
        targets = in_rows(targets, logits.dtype, ignore_index)
        assert isinstance(targets, Mixed)
        losses = averaged(of_label, targets)
    elif is_dense(targets):
        losses = _of_probabilities(logits, targets, of_label, margin, weight, label_smoothing)
    elif at_once:
        changed = _with_margin(logits, targets, margin, ignore_index)
        return _mean(torch.log_softmax(changed, dim=1), targets, ignore_index)
    else:
        losses = of_label(targets)
    if at_once:
        labels = torch.where(counted(targets, ignore_index), 0, -1)
        return _mean(-losses[:, None], labels, -1)
    return reduce(losses, targets, reduction, weight=weight, ignore_index=ignore_index)


def reduce(
    losses: Tensor,
    targets: Targets,
    reduction: str,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Mean, sum or none of per-sample losses, as cross-entropy does it.

    The mean divides by the summed class weights of the samples that count, of mixed labels by their
    shares; of class probabilities by the number of samples, as torch does. Where none counts (an
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
    known = counted(targets, ignore_index)
    if weight is None or is_dense(targets):
        return losses.sum() / known.sum().clamp_min(1)
    labels = unlabelled(in_rows(targets, losses.dtype, ignore_index), ignore_index)
    mass = torch.where(known, selected(weight.to(losses.dtype), labels), 0).sum()
    return losses.sum() / torch.where(mass >= torch.finfo(mass.dtype).tiny, mass, 1)


def _of_probabilities(
    logits: Tensor,
    targets: Tensor,
    of_label: Callable[[Tensor], Tensor],
    margin: Margin | None,
    weight: Tensor | None,
    smoothing: float,
) -> Tensor:
    """Σ_c t_c · loss of class c, (N,)."""
    targets, classes = targets.to(logits.dtype), logits.shape[1]
    if margin is None:
        likelihoods = torch.log_softmax(logits, dim=1)
        weighed = likelihoods if weight is None else likelihoods * weight
        losses = -(weighed * targets).sum(1)
        if smoothing:
            losses = (1 - smoothing) * losses - weighed.sum(1) * (smoothing / classes)
        return losses
    top = targets.argmax(dim=1)
    mixture = logits.new_ones(classes) if weight is None else weight
    changed = margin(logits)
    normalizer = torch.logaddexp(_others(logits), changed)
    each = (normalizer - changed) * mixture
    if smoothing:
        total = (logits @ mixture)[:, None] + mixture * (changed - logits)
        spread = normalizer * mixture.sum() - total
        each = (1 - smoothing) * each + smoothing / classes * spread
    return (targets * each.scatter(1, top[:, None], of_label(top)[:, None])).sum(1)


def _others(logits: Tensor) -> Tensor:
    """For each class, the log-sum-exp of all others, (N, C)."""
    # All classes but the likeliest have probabilities up to a half, which can be subtracted.
    top = logits.argmax(dim=1, keepdim=True)
    rest = logits.scatter(1, top, -torch.inf).logsumexp(dim=1, keepdim=True)
    everything = torch.logaddexp(rest, logits.gather(1, top))
    share = (logits - everything).exp().scatter(1, top, 0)
    return (everything + torch.log1p(-share)).scatter(1, top, rest)


def _with_margin(
    logits: Tensor, labels: Tensor, margin: Margin | None, ignore_index: int
) -> Tensor:
    if margin is None:
        return logits
    index = _known(labels, ignore_index)[:, None]
    return logits.scatter(1, index, margin(logits.gather(1, index)))


def _mean(likelihoods: Tensor, labels: Tensor, ignore_index: int) -> Tensor:
    summed = torch.ops.aten.nll_loss_forward.default
    total, count = summed(likelihoods, labels, None, _SUM, ignore_index)
    mean: Tensor = total / count.clamp_min(1)
    return mean


def counted(targets: Targets, ignore_index: int) -> Tensor:
    """Which samples count, (N,)."""
    if is_dense(targets):
        return labelled(targets)
    labels = targets[:2] if isinstance(targets, Mixed) else (targets,)
    known = [part.long() != ignore_index for part in labels]
    return known[0] & known[-1]


def _known(targets: Tensor, ignore_index: int) -> Tensor:
    targets = targets.long()
    return torch.where(targets == ignore_index, 0, targets)
