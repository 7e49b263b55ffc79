"""Shrinkage and scale chosen by samples that were held out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from torchlace.estimators.background import Spectrum
from torchlace.estimators.calibration import Calibration, calibrate
from torchlace.estimators.moments import empty_moments, merge
from torchlace.estimators.samples import Samples, folds, ranks
from torchlace.estimators.signatures import class_directions, fit_signatures
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


class Choice(NamedTuple):
    """What to fit with."""

    shrinkage: float
    scale: float
    temperature: float


class Fold:
    """Some samples to fit and others to look at, along the principal axes of the first."""

    def __init__(self, train: Samples, held: Samples, classes: int, constant: float | None) -> None:
        self.train, self.held, self.classes, self.constant = train, held, classes, constant
        self.spectrum = Spectrum(merge(empty_moments(classes, train.features), train))
        self.axes = self.spectrum.axes(train.features), self.spectrum.axes(held.features)

    def logits(self, shrinkage: float, scale: float) -> Tensor:
        """What the held samples score after a fit to the others."""
        lengths = self.spectrum.lengths(shrinkage)
        train, held = (directions(axes * lengths.to(axes), self.constant) for axes in self.axes)
        targets, weights = self.train.targets, self.train.weights
        start = class_directions(train, targets, weights, self.classes)
        found = fit_signatures(train, targets, weights, start, scale, max_iter=_MAX_ITER, tol=_TOL)
        return scale * held @ found.signatures.mT


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

    Args:
        samples: to choose by; of very many, some.
        classes: number of classes.
        constant: last coordinate of the whitened samples, if any.
        first: where to start, and the answer where nothing can be held out.
        shrinkage: whether to choose it.
        scale: whether to choose it.
        fraction: share of the samples to hold out.
        report: called with a line of text for each fit.
    """
    parts = _folds(samples, classes, constant, fraction)
    if not any(part.held.weights.any() for part in parts):
        return first
    held = Samples(*(torch.cat(field) for field in zip(*(p.held for p in parts), strict=True)))
    size = held.size()

    @cache
    def outcome(amount: float, factor: float) -> Calibration:
        logits = torch.cat([part.logits(amount, factor) for part in parts])
        found = calibrate(logits, held.targets, held.weights, size)
        report(f"shrinkage {amount:.4f}, scale {factor:.3g}: validation loss {found.loss:.4f}")
        return found

    # The shrinkage first: a small scale hides that a covariance is shrunk too little, and the
    # search would stay there.
    moves: list[Step] = [(1, 0)] * shrinkage + [(0, 2)] * scale
    moves += [(1, 0)] * shrinkage + [(0, 1)] * scale
    best = _settings(first, _descend(lambda step: outcome(*_settings(first, step)).loss, moves))
    return Choice(*best, outcome(*best).temperature)


def directions(whitened: Tensor, constant: float | None) -> Tensor:
    """Whitened samples of length one, with their last coordinate."""
    if constant is not None:
        whitened = torch.cat([whitened, torch.full_like(whitened[:, :1], constant)], dim=1)
    return unit(whitened)


def _folds(samples: Samples, classes: int, constant: float | None, fraction: float) -> list[Fold]:
    parts = math.ceil(len(samples.targets) / _MOST)
    if parts > 1:
        samples = samples.take(ranks(samples.targets).clamp_min(0) % parts == 0)
    place, number = ranks(samples.targets), folds(fraction)
    masks = ((place >= 0) & (place % number == index) for index in range(min(number, _MOST_FOLDS)))
    chosen: list[Fold] = []
    for held in masks:
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
