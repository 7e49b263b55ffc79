"""Temperature scaling: one number that makes probabilities mean something."""

from __future__ import annotations

import torch
from torch import Tensor

_RANGE = 1e4


def fit_temperature(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The temperature T that minimises the cross-entropy of ``logits / T``.

    To the N samples one more is added whose label is uncertain (it spreads evenly over the classes
    of every sample, in shares of 1/N): otherwise samples that are all classified correctly would
    send T to zero, and a single error on new ones would cost a fortune. The cross-entropy is convex
    in 1/T, so bisection on its slope finds the optimum.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]] * 4)
        >>> fit_temperature(logits, torch.tensor([0, 0, 0, 1]))  # 2/T = ln(3.5 / 1.5)
        tensor(2.3604)
    """
    counted = targets != ignore_index
    scores, labels = logits[counted].double(), targets[counted].long()
    if len(labels) == 0:
        raise ValueError("calibration needs at least one labelled sample, got none")
    scores = scores - scores.amax(dim=1, keepdim=True)
    doubt = 1 / (len(labels) + 1)
    truth = (1 - doubt) * scores.gather(1, labels[:, None])[:, 0] + doubt * scores.mean(dim=1)
    low = scores.new_full((), 1 / _RANGE).log()
    high = -low
    for _ in range(60):
        middle = (low + high) / 2
        expected = (torch.softmax(scores * middle.exp(), dim=1) * scores).sum(dim=1)
        rising = (expected - truth).mean() > 0
        low, high = torch.where(rising, low, middle), torch.where(rising, middle, high)
    flat = (scores == 0).all()
    return torch.where(flat, 1, (-(low + high) / 2).exp()).to(logits.dtype)
