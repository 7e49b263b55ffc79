"""The temperature of weighted samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

_RANGE = 1e4


class Calibration(NamedTuple):
    """A temperature and the cross-entropy it leaves."""

    temperature: float
    loss: float


def calibrate(logits: Tensor, targets: Tensor, weights: Tensor, size: float) -> Calibration:
    """The temperature that minimises the weighted cross-entropy of ``logits / temperature``.

    As in :func:`torchlace.heads.fit_temperature`, one sample of uncertain label is added to the
    ``size`` that there are, so that samples which are all classified correctly don't send it to 0.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0]] * 4)
        >>> calibrate(logits, torch.tensor([0, 0, 0, 1]), torch.ones(4), 4.0).temperature
        2.36...
    """
    scores = logits.double()
    scores = scores - scores.amax(dim=1, keepdim=True)
    shares = weights.double() / weights.double().sum()
    doubt = 1 / (size + 1)
    truth = (1 - doubt) * scores.gather(1, targets[:, None])[:, 0] + doubt * scores.mean(dim=1)

    def slope(sharpness: float) -> float:
        expected = (torch.softmax(scores * sharpness, dim=1) * scores).sum(dim=1)
        return float((shares * (expected - truth)).sum())

    if slope(1 / _RANGE) >= 0:
        sharpness = 1.0 if slope(1.0) == 0 else 1 / _RANGE
    elif slope(_RANGE) <= 0:
        sharpness = _RANGE
    else:
        sharpness = brentq(slope, 1 / _RANGE, _RANGE, xtol=1e-12, rtol=1e-12)
    loss = torch.logsumexp(scores * sharpness, dim=1) - sharpness * truth
    return Calibration(1 / sharpness, float((shares * loss).sum()))
