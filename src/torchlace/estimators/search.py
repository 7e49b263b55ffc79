"""Signatures that gradient descent refines, where samples held out say that this is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from torchlace._sklearn import Array
from torchlace.estimators.closed import LEAST_SHRINKAGE, Rule, Spectrum
from torchlace.estimators.samples import Samples, folds, ranks, stacked
from torchlace.estimators.scales import cross_entropies, sharpest
from torchlace.estimators.sums import Sums, sums_of

# Samples to choose by: of more, some, so that choosing takes no longer than fitting.
_MOST = 20_000
# Small sets are held out in several parts in turn, until so many samples were.
_ENOUGH_HELD, _MOST_FOLDS = 1000, 5
# Fits are compared here, not used, so a coarse optimum will do.
_TOL, _MAX_ITER = 1e-3, 50
# Where refining begins: the odds of more shrinkage than in closed form hold back what the samples
# themselves are fitted by, and at a smaller scale those that are right already still count.
_ODDS, _SHARE = 32.0, 1 / 3
_REACH = 4
# In standard errors, what makes another step worth its while: less is likely to be chance.
_GAIN = 0.5


class Solution(NamedTuple):
    """Where the optimiser stopped; signatures, (F, C, d), are of length one."""

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

    It does so for several sets of samples at once, since on small ones every step has its price:
    ``vectors`` are (F, N, d), whitened and of length one, and so have ``samples`` and ``start`` one
    dimension more than elsewhere. ``bias`` is added to the scores of each class; ``tol`` is the
    largest entry of the gradient at which L-BFGS has converged.
    """
    shares = F.normalize(samples.weights, p=1, dim=1)
    shares, own = shares[:, None].to(vectors), samples.targets[:, None]
    # What the gradient is less by for samples that are right.
    right = vectors.new_zeros(len(vectors), start.shape[1], vectors.shape[1])
    right = torch.bmm(right.scatter_(1, own, shares), vectors)
    # Coordinates that all samples have in common are steep; L-BFGS wants them alike.
    pace = (1 + vectors.shape[2] * (shares @ vectors).square()) ** -0.25
    bias = bias.to(vectors)[:, None]
    losses: list[float] = []

    def objective(flat: Array) -> tuple[float, Array]:
        point = torch.from_numpy(flat).view_as(start).to(start) * pace
        lengths = torch.linalg.vector_norm(point, dim=2, keepdim=True).clamp_min_(1e-30)
        signatures = point.div_(lengths)
        # Class by class: a softmax over neighbours in memory takes ten times as long.
        logits = torch.baddbmm(bias, signatures, vectors.mT, alpha=scale).log_softmax(1)
        losses.append(-float(logits.gather(1, own).mul_(shares).sum()))
        slope = torch.bmm(logits.exp_().mul_(shares), vectors).sub_(right)
        slope.addcmul_((slope * signatures).sum(2, keepdim=True), signatures, value=-1)
        slope.mul_(scale * pace / lengths)
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
    signatures = F.normalize(torch.from_numpy(found.x).to(start).view_as(start) * pace, dim=2)
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


class Folds:
    """Samples parted several times, each time into some to fit and others to look at.

    Both lie along the principal axes of those to fit, in single precision, which is good enough to
    compare by and twice as fast.
    """

    def __init__(self, parts: Sequence[tuple[Samples, Samples]], classes: int) -> None:
        sums = zip(*(sums_of(train, classes) for train, _ in parts), strict=True)
        self.spectrum = Spectrum(Sums(*(torch.stack(part) for part in sums)))
        self.train, held = (stacked(each) for each in zip(*parts, strict=True))
        pair = self.spectrum.axes(self.train.features), self.spectrum.axes(held.features)
        self.axes, self.held_axes = (axes.float() for axes in pair)
        # Of all folds in one; those of weight zero fill up the shorter ones.
        self.held = Samples(*(part.flatten(0, 1) for part in held))
        self.number = int((self.held.counts > 0).sum())

    def first(self, count: int) -> Samples:
        """The first so many of the samples held out."""
        return Samples(*(part[:count] for part in self.held))

    def gain(self, one: Outcome, other: Outcome) -> float:
        """How much lower the loss of one is, in standard errors of the difference.

        Where one has the losses in fewer folds, these count.
        """
        count = min(len(one.losses), len(other.losses))
        gains = other.losses[:count] - one.losses[:count]
        mean = self.mean(gains)
        error = math.sqrt(self.mean((gains - mean).square()) / self.first(count).size())
        return mean / max(error, 1e-12)

    def mean(self, losses: Tensor) -> float:
        """The mean over the samples held out."""
        weights = self.first(len(losses)).weights.double()
        return float(weights @ losses / weights.sum())


def choose(
    samples: Samples,
    rule: Rule,
    likeliest: float,
    bias: Tensor,
    *,
    shrinkage: float | None,
    scale: float | None,
    always: bool,
    fraction: float,
    report: Callable[[str], None],
) -> Choice | None:
    """What to refine with; None where the closed form is as good on samples held out.

    Args:
        samples: to choose by.
        rule: the closed form of all samples.
        likeliest: its scale.
        bias: what is added to the scores of each class, (C,).
        shrinkage: given, or None: downhill from more than the closed form has.
        scale: likewise, from less than the closed form has.
        always: whether the closed form is out of the question.
        fraction: how many samples of each class to hold out.
        report: told of every comparison.
    """
    odds = _ODDS * rule.shrinkage / max(1 - rule.shrinkage, 1e-3)
    first = Choice(
        max(odds / (1 + odds), LEAST_SHRINKAGE) if shrinkage is None else shrinkage,
        likeliest * _SHARE if scale is None else scale,
        1.0,
    )
    first = first._replace(temperature=first.scale / likeliest)
    folds = _folds(samples.thinned(_MOST), len(bias), fraction)
    if folds is None:
        return first if always else None
    search = _Search(folds, rule, likeliest, bias, report)
    closed, best = search.closed(), search.refined(first)
    # Of fewer samples it would be chance that chooses.
    enough, gain = folds.number >= _ENOUGH_HELD, folds.gain(best, closed)
    if not always and gain < -enough:
        return None
    for moved, free in ((_shrunk, shrinkage is None), (_scaled, scale is None)):
        best = search.downhill(best, moved) if free and enough else best
    better = always or max(gain, folds.gain(best, closed)) > 0
    return best.choice if better else None


@dataclass(frozen=True)
class _Search:
    """Compares what to refine with by samples held out; fields as of :func:`choose`."""

    folds: Folds
    rule: Rule
    likeliest: float
    bias: Tensor
    report: Callable[[str], None]

    def closed(self) -> Outcome:
        """The closed form."""
        choice = Choice(self.rule.shrinkage, self.likeliest, 1.0)
        rule = self._rule(choice)
        return self._judge("closed form", rule, choice, rule.signatures().float())

    def refined(self, choice: Choice, number: int | None = None) -> Outcome:
        """What a refined form comes to in the folds, or in so many of them."""
        rule = self._rule(choice)
        found = fit_signatures(
            rule.vectors(self.folds.axes)[:number],
            Samples(*(part[:number] for part in self.folds.train)),
            rule.signatures()[:number].float(),
            choice.scale,
            self.bias * choice.scale / self.likeliest,
            max_iter=_MAX_ITER,
            tol=_TOL,
        )
        return self._judge("refined", rule, choice, found.signatures)

    def downhill(self, best: Outcome, moved: Callable[[Choice, int], Choice]) -> Outcome:
        """The best along one coordinate: upwards, or if that is not better downwards.

        Half of the folds decide it, and two at least, since most of the time goes by here.
        """
        start, half = best, max((len(self.folds.axes) + 1) // 2, 2)
        for direction in (1, -1):
            for _ in range(_REACH if best is start else 0):
                found = self.refined(moved(best.choice, direction), half)
                if self.folds.gain(found, best) <= _GAIN:
                    break
                best = found
        return best

    def _rule(self, choice: Choice) -> Rule:
        """The closed form of each fold."""
        return Rule(self.folds.spectrum, choice.shrinkage, self.rule.constant is not None)

    def _judge(self, name: str, rule: Rule, choice: Choice, signatures: Tensor) -> Outcome:
        """At the temperature that makes the labels of the samples held out likeliest."""
        cosines = signatures @ rule.vectors(self.folds.held_axes)[: len(signatures)].mT
        cosines = cosines.transpose(0, 1).flatten(1).double()
        held = self.folds.first(cosines.shape[1])
        logits = choice.scale * (cosines + self.bias[:, None] / self.likeliest)
        sharpness = sharpest(logits, held, self.likeliest / choice.scale)
        losses = cross_entropies(sharpness * logits, held.targets)
        self.report(
            f"{name}, shrinkage {choice.shrinkage:.4f}, scale {choice.scale:.3g}: "
            f"validation loss {self.folds.mean(losses):.4f}"
        )
        return Outcome(choice._replace(temperature=1 / sharpness), losses)


def _shrunk(choice: Choice, direction: int) -> Choice:
    odds = choice.shrinkage / max(1 - choice.shrinkage, 1e-3) * 8.0**direction
    return choice._replace(shrinkage=max(odds / (1 + odds), LEAST_SHRINKAGE))


def _scaled(choice: Choice, direction: int) -> Choice:
    return choice._replace(scale=choice.scale * math.sqrt(2) ** direction)


def _folds(samples: Samples, classes: int, fraction: float) -> Folds | None:
    """Parts of the samples, each held out in turn; None where there is none to be held out."""
    place, number = ranks(samples.targets), folds(fraction)
    part = torch.where(place >= 0, place % number, number)
    sizes = torch.bincount(part, minlength=number)[: min(number, _MOST_FOLDS)]
    used = int((sizes.cumsum(0) - sizes < _ENOUGH_HELD).logical_and(sizes > 0).sum())
    parts = [(samples.take(part != index), samples.take(part == index)) for index in range(used)]
    return Folds(parts, classes) if any(held.weights.any() for _, held in parts) else None
