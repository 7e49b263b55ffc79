"""Signatures of fixed features; shrinkage, scale and temperature that held-out samples choose."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from scipy.optimize import brentq, minimize
from torch import Tensor
from torch.nn import functional as F

from torchlace._sklearn import Array
from torchlace.estimators.samples import Samples, Spectrum, empty_moments, folds, ranks
from torchlace.functional import unit

Step = tuple[int, int]

LEAST_SHRINKAGE = 1e-6
# Samples to choose by: of more, some, so that choosing takes no longer than fitting.
_MOST = 20_000
# Small sets are held out in several parts in turn, until so many samples were.
_ENOUGH_HELD = 1000
_MOST_FOLDS = 5
# Fits are compared here, not used, so a coarse optimum will do.
_TOL, _MAX_ITER = 1e-3, 50
_REACH = 12
_LARGEST_TEMPERATURE = 1e4


class Solution(NamedTuple):
    """Where the optimiser stopped; signatures, (C, d), are of length one."""

    signatures: Tensor
    iterations: int
    converged: bool


def class_directions(vectors: Tensor, samples: Samples, classes: int) -> Tensor:
    """Where each class lies from the mean of all, of length one, (C, d); zero without samples."""
    targets, weights = samples.targets, samples.weights[:, None]
    mass = weights.new_zeros(classes, 1).index_add(0, targets, weights)
    sums = vectors.new_zeros(classes, vectors.shape[1]).index_add(0, targets, vectors * weights)
    return unit(sums - mass * sums.sum(0) / mass.sum())


def fit_signatures(
    vectors: Tensor,
    samples: Samples,
    start: Tensor,
    scale: float,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] = lambda text: None,
) -> Solution:
    """Minimise the weighted cross-entropy of ``scale`` times the cosine to each signature.

    ``vectors`` are the samples, whitened and of length one, (N, d); ``tol`` is the largest entry of
    the gradient at which L-BFGS has converged.
    """
    shares = samples.weights / samples.weights.sum()
    # Coordinates that all samples have in common are steep; L-BFGS wants them alike.
    pace = (1 + vectors.shape[1] * (shares @ vectors).square()) ** -0.25
    losses: list[float] = []

    def objective(flat: Array) -> tuple[float, Array]:
        point = torch.from_numpy(flat).to(start).view_as(start).requires_grad_()
        logits = vectors @ (scale * unit(point * pace)).mT
        loss = (F.cross_entropy(logits, samples.targets, reduction="none") * shares).sum()
        (slope,) = torch.autograd.grad(loss, point)
        losses.append(loss.item())
        return losses[-1], slope.double().flatten().cpu().numpy()

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


class Calibration(NamedTuple):
    """A temperature and the cross-entropy it leaves."""

    temperature: float
    loss: float


def calibrate(logits: Tensor, samples: Samples) -> Calibration:
    """The temperature that minimises the weighted cross-entropy of ``logits / temperature``.

    As in :func:`torchlace.heads.fit_temperature`, one sample of uncertain label is added to those
    that there are, so that samples which are all classified correctly don't send it to 0.
    """
    scores, weights = logits.double(), samples.weights.double()
    scores = scores - scores.amax(dim=1, keepdim=True)
    shares = weights / weights.sum()
    doubt = 1 / (samples.size() + 1)
    own = scores.gather(1, samples.targets[:, None])[:, 0]
    truth = (1 - doubt) * own + doubt * scores.mean(dim=1)

    def slope(sharpness: float) -> float:
        expected = (torch.softmax(scores * sharpness, dim=1) * scores).sum(dim=1)
        return float((shares * (expected - truth)).sum())

    low, high = 1 / _LARGEST_TEMPERATURE, _LARGEST_TEMPERATURE
    if slope(low) >= 0:
        sharpness = 1.0 if slope(1.0) == 0 else low
    elif slope(high) <= 0:
        sharpness = high
    else:
        sharpness = brentq(slope, low, high, xtol=1e-12, rtol=1e-12)
    loss = torch.logsumexp(scores * sharpness, dim=1) - sharpness * truth
    return Calibration(1 / sharpness, float((shares * loss).sum()))


class Choice(NamedTuple):
    """What to fit with."""

    shrinkage: float
    scale: float
    temperature: float


class Fold:
    """Some samples to fit and others to look at, along the principal axes of the first."""

    def __init__(self, train: Samples, held: Samples, classes: int, constant: float | None) -> None:
        self.train, self.held, self.classes, self.constant = train, held, classes, constant
        self.spectrum = Spectrum(empty_moments(classes, train.features).merge(train))
        self.axes = self.spectrum.axes(train.features), self.spectrum.axes(held.features)

    def logits(self, shrinkage: float, scale: float) -> Tensor:
        """What the held samples score after a fit to the others."""
        lengths = self.spectrum.lengths(shrinkage)
        train, held = (self._directions(axes * lengths.to(axes)) for axes in self.axes)
        start = class_directions(train, self.train, self.classes)
        found = fit_signatures(train, self.train, start, scale, max_iter=_MAX_ITER, tol=_TOL)
        return scale * held @ found.signatures.mT

    def _directions(self, whitened: Tensor) -> Tensor:
        """Whitened samples of length one, with their last coordinate."""
        if self.constant is not None:
            last = torch.full_like(whitened[:, :1], self.constant)
            whitened = torch.cat([whitened, last], dim=1)
        return unit(whitened)


def choose(
    samples: Samples,
    classes: int,
    constant: float | None,
    first: Choice,
    *,
    shrinkage: bool,
    scale: bool,
    fraction: float,
    report: Callable[[str], None],
) -> Choice:
    """The shrinkage and scale of the lowest loss on samples held out, and its temperature.

    A search along one coordinate after the other, from ``first``: the odds of the shrinkage in
    powers of 4, the scale in powers of √2. The loss is the cross-entropy at the best temperature.
    ``shrinkage`` and ``scale`` say whether to choose these; ``constant`` is the last coordinate of
    the whitened samples, if any. Where nothing can be held out the answer is ``first``.
    """
    parts = _folds(samples, classes, constant, fraction)
    if not any(part.held.weights.any() for part in parts):
        return first
    held = Samples(*(torch.cat(field) for field in zip(*(p.held for p in parts), strict=True)))

    @cache
    def outcome(amount: float, factor: float) -> Calibration:
        logits = torch.cat([part.logits(amount, factor) for part in parts])
        found = calibrate(logits, held)
        report(f"shrinkage {amount:.4f}, scale {factor:.3g}: validation loss {found.loss:.4f}")
        return found

    # The shrinkage first: a small scale hides that a covariance is shrunk too little, and the
    # search would stay there.
    moves: list[Step] = [(1, 0)] * shrinkage + [(0, 2)] * scale
    moves += [(1, 0)] * shrinkage + [(0, 1)] * scale
    best = _settings(first, _descend(lambda step: outcome(*_settings(first, step)).loss, moves))
    return Choice(*best, outcome(*best).temperature)


def _folds(samples: Samples, classes: int, constant: float | None, fraction: float) -> list[Fold]:
    parts = math.ceil(len(samples.targets) / _MOST)
    if parts > 1:
        samples = samples.take(ranks(samples.targets).clamp_min(0) % parts == 0)
    place, number = ranks(samples.targets), folds(fraction)
    chosen: list[Fold] = []
    for index in range(min(number, _MOST_FOLDS)):
        held = (place >= 0) & (place % number == index)
        if held.any() and sum(len(part.held.targets) for part in chosen) < _ENOUGH_HELD:
            chosen.append(Fold(samples.take(~held), samples.take(held), classes, constant))
    return chosen


def _settings(first: Choice, step: Step) -> tuple[float, float]:
    """Shrinkage and scale so many steps from the first."""
    scale = first.scale * math.sqrt(2) ** step[1]
    if step[0] == 0:
        return first.shrinkage, scale
    odds = first.shrinkage / max(1 - first.shrinkage, 1e-3) * 4.0 ** step[0]
    return max(odds / (1 + odds), LEAST_SHRINKAGE), scale


def _descend(loss: Callable[[Step], float], moves: list[Step]) -> Step:
    """Downhill from (0, 0) on a grid, along one move after the other."""
    best = (0, 0)
    for move in moves:
        for sign in (1, -1):
            while True:
                step = (best[0] + sign * move[0], best[1] + sign * move[1])
                if max(map(abs, step)) > _REACH or loss(step) >= loss(best):
                    break
                best = step
    return best
