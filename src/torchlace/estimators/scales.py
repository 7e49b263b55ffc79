"""Which scale of cosines makes labels likeliest: a sum over samples, so that parts can be added."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from torchlace.estimators.samples import Samples

# In steps of √2: a parabola through three finds the rest.
_GRID = 2 ** (torch.arange(-12, 29, dtype=torch.float64) / 2)
_TOGETHER = 100_000
_LEAST_SHARE = 1e-9


class Scales(NamedTuple):
    """The loss that samples of each class had at each of some scales."""

    mass: Tensor
    """What the samples of each class count together, (C,)."""
    losses: Tensor
    """The sum of their cross-entropies, (C, J)."""

    @classmethod
    def silent(cls, classes: int, like: Tensor) -> Self:
        """Of no samples, on the device of ``like``."""
        shapes = (classes,), (classes, len(_GRID))
        return cls(*(like.new_zeros(shape, dtype=torch.float64) for shape in shapes))

    @classmethod
    def of(cls, cosines: Tensor, samples: Samples, bias: Tensor) -> Self:
        """Of samples whose logits are a scale times these cosines, plus the ``bias``."""
        found = cls.silent(cosines.shape[1], cosines)
        own, counts, cosines = samples.targets, samples.counts.double(), cosines.double()
        found.mass.index_add_(0, own, counts)
        logits, shift = cosines.mT.contiguous(), bias.double()[:, None]
        place = 0
        # Of few samples many scales at a time, since each operation has its price.
        for scales in _GRID.to(cosines).split(max(_TOGETHER // (cosines.numel() + 1), 1)):
            losses = cross_entropies(scales[:, None, None] * logits + shift, own)
            rows = slice(place, place + len(scales))
            found.losses[:, rows].index_add_(0, own, losses.mT * counts[:, None])
            place += len(scales)
        return found

    def add(self, other: Scales) -> Scales:
        """Of the samples of both."""
        return Scales(self.mass + other.mass, self.losses + other.losses)

    def fade(self, share: Tensor) -> Scales:
        """The same, but it counts this share."""
        return Scales(self.mass * share, self.losses * share)

    def likeliest(self, weights: Tensor, guess: float, size: float) -> float:
        """The best scale for classes of these ``weights``.

        To the loss of the ``size`` samples that there are the ``guess`` adds that of one more: half
        the square of the logarithm of what lies between. So samples that are all classified
        correctly don't send the scale to infinity.

        Example:
            >>> cosines, one = torch.tensor([[0.5, 0.0], [0.5, 0.0]]), torch.ones(2)
            >>> wrong = Samples(cosines, torch.tensor([0, 1]), one, one)
            >>> scales = Scales.of(cosines, wrong, torch.zeros(2))
            >>> scales.likeliest(one.double(), guess=4.0, size=2) < 4
            True
        """
        total = weights @ self.mass
        if total <= 0:
            return guess
        grid = _GRID.to(self.losses.device)
        trust = len(weights) / (2 * size)
        loss = weights @ self.losses / total + trust * (grid / guess).log().square()
        best = min(max(int(loss.argmin()), 1), len(grid) - 2)
        before, here, after = loss[best - 1 : best + 2].tolist()
        bend = before - 2 * here + after
        step = min(max((before - after) / (2 * bend), -1), 1) if bend > 0 else 0
        return float(grid[best]) * 2 ** (step / 2)


def sharpest(logits: Tensor, samples: Samples, guess: float) -> float:
    """What to multiply the logits of samples, (C, N), by, so that their labels are likeliest.

    The ``guess`` counts as in :meth:`Scales.likeliest`.

    Example:
        >>> logits, one = torch.tensor([[0.0, 4.0], [0.0, 4.0], [4.0, 0.0]]), torch.ones(3)
        >>> held = Samples(logits, torch.tensor([0, 1, 0]), one, one)
        >>> round(sharpest(logits.mT, held, 1.0), 2)
        0.51
    """
    shares, logits = (samples.weights / samples.weights.sum()).double(), logits.double()
    trust = len(logits) / (2 * samples.size())

    def loss(step: float) -> float:
        losses = cross_entropies(guess * math.exp(step) * logits, samples.targets)
        return float(shares @ losses) + trust * step**2

    found = minimize_scalar(loss, bounds=(-6, 6), method="bounded", options={"xatol": 0.01})
    return guess * math.exp(found.x)


def cross_entropies(logits: Tensor, targets: Tensor) -> Tensor:
    """Of samples whose logits are given class by class, (..., C, N), which is faster: (..., N).

    Example:
        >>> cross_entropies(torch.tensor([[0.0, 9.0], [0.0, 0.0]]), torch.tensor([1, 0])).round()
        tensor([1., 0.])
    """
    shares = torch.log_softmax(logits, dim=-2)
    own = targets.expand(*logits.shape[:-2], 1, -1)
    return -shares.gather(-2, own).squeeze(-2)


def log_shares(mass: Tensor) -> Tensor:
    """The logarithm of each class's share of the mass, (C,); finite for an empty one.

    Example:
        >>> log_shares(torch.tensor([3.0, 1.0])).exp()
        tensor([0.7500, 0.2500])
    """
    return (mass / mass.sum()).clamp_min(_LEAST_SHARE).log()
