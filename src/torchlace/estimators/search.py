"""Signatures that gradient descent refines, where samples held out say that this is better."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from scipy.optimize import minimize
from torch import Tensor

from torchlace._sklearn import Array
from torchlace.estimators.closed import LEAST_SHRINKAGE, Rule, Spectrum
from torchlace.estimators.samples import Samples, folds, ranks
from torchlace.estimators.scales import Scales
from torchlace.estimators.sums import Sums, sums_of
from torchlace.functional import unit

# Samples to choose by: of more, some, so that choosing takes no longer than fitting.
_MOST = 20_000
# Small sets are held out in several parts in turn, until so many samples were.
_ENOUGH_HELD = 1000
_MOST_FOLDS = 5
# Fits are compared here, not used, so a coarse optimum will do.
_TOL, _MAX_ITER = 1e-3, 50
# Where refining begins: the odds of more shrinkage than in closed form hold back what the samples
# themselves are fitted by, and at a smaller scale those that are right already still count.
_ODDS, _SHARE = 32.0, 1 / 3
_REACH = 4
# In standard errors, what makes another step worth its while: less is likely to be chance.
_GAIN = 0.5


class Solution(NamedTuple):
    """Where the optimiser stopped; signatures, (C, d), are of length one."""

    signatures: Tensor
    iterations: int
    converged: bool


def fit_signatures(
    vectors: Tensor,
    samples: Samples,
    start: Tensor,
    scale: float,
    bias: Tensor,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] = lambda text: None,
) -> Solution:
    """Minimise the weighted cross-entropy of ``scale`` times the cosine to each signature.

    ``vectors`` are the samples, whitened and of length one, (N, d); ``bias`` is added to the scores
    of each class; ``tol`` is the largest entry of the gradient at which L-BFGS has converged.
    """
    shares = samples.weights / samples.weights.sum()
    # Coordinates that all samples have in common are steep; L-BFGS wants them alike.
    pace = (1 + vectors.shape[1] * (shares @ vectors).square()) ** -0.25
    rows, own = torch.arange(len(vectors), device=vectors.device), samples.targets
    bias = bias.to(vectors)
    losses: list[float] = []

    def objective(flat: Array) -> tuple[float, Array]:
        point = torch.from_numpy(flat).to(start).view_as(start) * pace
        lengths = torch.linalg.vector_norm(point, dim=1, keepdim=True).clamp_min(1e-30)
        signatures = point / lengths
        logits = torch.log_softmax(torch.addmm(bias, vectors, signatures.mT, alpha=scale), dim=1)
        losses.append(-float(shares @ logits[rows, own]))
        slopes = logits.exp_()
        slopes[rows, own] -= 1
        slope = scale * (slopes * shares[:, None]).mT @ vectors
        slope = (slope - (slope * signatures).sum(1, keepdim=True) * signatures) / lengths * pace
        return losses[-1], slope.double().flatten().cpu().numpy()

    with torch.no_grad():
        found = minimize(
            objective,
            (start / pace).double().flatten().cpu().numpy(),
            jac=True,
            method="L-BFGS-B",
            callback=lambda _: report(f"training loss {losses[-1]:.5f}"),
            options={
                "maxiter": max_iter,
                "maxls": 50,
                "gtol": tol,
                # Below what rounding leaves of the loss there is nothing to gain.
                "ftol": 16 * float(torch.finfo(vectors.dtype).eps),
            },
        )
    signatures = unit(torch.from_numpy(found.x).to(start).view_as(start) * pace)
    return Solution(signatures, int(found.nit), found.status != 1)


class Choice(NamedTuple):
    """What to refine with."""

    shrinkage: float
    scale: float
    temperature: float


class Outcome(NamedTuple):
    """How samples that were held out fared."""

    choice: Choice
    losses: Tensor
    """Their cross-entropies, (N,)."""


class Fold:
    """Some samples to fit and others to look at, along the principal axes of the first."""

    def __init__(self, train: Samples, held: Samples, sums: Sums) -> None:
        self.train, self.held = train, held
        self.spectrum = Spectrum(sums)
        self.axes = self.spectrum.axes(train.features), self.spectrum.axes(held.features)


class Search:
    """Compares the closed form and refined ones by the cross-entropy of samples held out.

    Args:
        samples: to choose by.
        rule: the closed form of all samples.
        likeliest: its scale.
        bias: what is added to the scores of each class, (C,).
        fraction: how many samples of each class to hold out.
        report: told of every comparison.
    """

    def __init__(
        self,
        samples: Samples,
        rule: Rule,
        likeliest: float,
        bias: Tensor,
        fraction: float,
        report: Callable[[str], None],
    ) -> None:
        self.rule, self.likeliest, self.bias, self.report = rule, likeliest, bias, report
        self.folds = _folds(samples.thinned(_MOST), len(bias), fraction)
        if self.folds:
            parts = zip(*(fold.held for fold in self.folds), strict=True)
            self.held = Samples(*(torch.cat(part) for part in parts))

    def best(self, shrinkage: float | None, scale: float | None, always: bool) -> Choice | None:
        """What to refine with; None where the closed form is as good.

        Args:
            shrinkage: given, or None: downhill from more than the closed form has.
            scale: likewise, from less than the closed form has.
            always: whether the closed form is out of the question.
        """
        odds = _ODDS * self.rule.shrinkage / max(1 - self.rule.shrinkage, 1e-3)
        first = Choice(
            max(odds / (1 + odds), LEAST_SHRINKAGE) if shrinkage is None else shrinkage,
            self.likeliest * _SHARE if scale is None else scale,
            1.0,
        )
        first = first._replace(temperature=first.scale / self.likeliest)
        if not self.folds or not self.held.weights.any():
            return first if always else None
        closed, best = self.closed(), self.refined(first)
        # Of fewer samples it would be chance that chooses.
        enough = len(self.held.targets) >= _ENOUGH_HELD
        if not always and self._gain(best, closed) < -enough:
            return None
        for moved, free in ((_shrunk, shrinkage is None), (_scaled, scale is None)):
            best = self._downhill(best, moved) if free and enough else best
        return best.choice if always or self._gain(best, closed) > 0 else None

    def closed(self) -> Outcome:
        """The closed form."""
        choice = Choice(self.rule.shrinkage, self.likeliest, 1.0)
        cosines = self._cosines(choice, refine=False)
        return self._judge("closed form", choice, cosines * self.likeliest + self.bias)

    def refined(self, choice: Choice) -> Outcome:
        """What a refined form comes to, with its likeliest temperature."""
        bias = self.bias * choice.scale / self.likeliest
        logits = choice.scale * self._cosines(choice, refine=True) + bias
        return self._judge("refined", choice, logits)

    def _judge(self, name: str, choice: Choice, logits: Tensor) -> Outcome:
        weighed = self.held._replace(counts=self.held.weights)
        scales = Scales.of(logits, weighed, torch.zeros_like(self.bias))
        guess = self.likeliest / choice.scale
        sharpness, _ = scales.likeliest(torch.ones_like(self.bias), guess, self.held.size())
        shares = torch.log_softmax(sharpness * logits, dim=1)
        found = Outcome(
            choice._replace(temperature=1 / sharpness),
            -shares.gather(1, self.held.targets[:, None])[:, 0],
        )
        self.report(
            f"{name}, shrinkage {choice.shrinkage:.4f}, scale {choice.scale:.3g}: "
            f"validation loss {self._mean(found.losses):.4f}"
        )
        return found

    def _downhill(self, best: Outcome, moved: Callable[[Choice, int], Choice]) -> Outcome:
        """The best along one coordinate: upwards, or if that is not better downwards."""
        start = best
        for direction in (1, -1):
            for _ in range(_REACH if best is start else 0):
                found = self.refined(moved(best.choice, direction))
                if self._gain(found, best) <= _GAIN:
                    break
                best = found
        return best

    def _gain(self, one: Outcome, other: Outcome) -> float:
        """How much lower the loss of one is, in standard errors of the difference."""
        gains = other.losses - one.losses
        mean = self._mean(gains)
        error = math.sqrt(self._mean((gains - mean).square()) / self.held.size())
        return mean / max(error, 1e-12)

    def _mean(self, values: Tensor) -> float:
        weights = self.held.weights.double()
        return float(weights @ values / weights.sum())

    def _cosines(self, choice: Choice, refine: bool) -> Tensor:
        """Of all samples held out, to signatures of the others, (N, C)."""
        found: list[Tensor] = []
        for fold in self.folds:
            rule = Rule(fold.spectrum, choice.shrinkage, self.rule.constant is not None)
            train, held = (rule.vectors(axes) for axes in fold.axes)
            signatures = rule.signatures().to(train)
            if refine:
                solution = fit_signatures(
                    train,
                    fold.train,
                    signatures,
                    choice.scale,
                    self.bias * choice.scale / self.likeliest,
                    max_iter=_MAX_ITER,
                    tol=_TOL,
                )
                signatures = solution.signatures
            found.append(held @ signatures.mT)
        return torch.cat(found).double()


def _shrunk(choice: Choice, direction: int) -> Choice:
    odds = choice.shrinkage / max(1 - choice.shrinkage, 1e-3) * 8.0**direction
    return choice._replace(shrinkage=max(odds / (1 + odds), LEAST_SHRINKAGE))


def _scaled(choice: Choice, direction: int) -> Choice:
    return choice._replace(scale=choice.scale * math.sqrt(2) ** direction)


def _folds(samples: Samples, classes: int, fraction: float) -> list[Fold]:
    place, number = ranks(samples.targets), folds(fraction)
    part = torch.where(place >= 0, place % number, number)
    sizes = torch.bincount(part, minlength=number)[: min(number, _MOST_FOLDS)]
    used = int((sizes.cumsum(0) - sizes < _ENOUGH_HELD).logical_and(sizes > 0).sum())
    sums = [sums_of(samples.take(_part(part, index, used)), classes) for index in range(used + 1)]
    return [
        Fold(
            samples.take(part != index),
            samples.take(part == index),
            reduce(Sums.join, sums[:index] + sums[index + 1 :]),
        )
        for index in range(used)
    ]


def _part(part: Tensor, index: int, used: int) -> Tensor:
    """The samples of a part; the last are those that are never held out."""
    return part == index if index < used else part >= used
