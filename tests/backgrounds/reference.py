"""Running statistics the slow way, in fp64: every sample ever seen, with what it still counts."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import torchlace as tl

LEAST_SHRINKAGE = 1e-4
History = list[tuple[Tensor, Tensor]]


class Expected(NamedTuple):
    mean: Tensor
    precision: Tensor


def expected(background: tl.backgrounds.Background, history: History) -> Expected:
    """What ``background`` must be, refreshed after the batches of ``history``."""
    return REFERENCES[type(background)](background, history)


def refreshed(history: History, refresh_every: int) -> History:
    """The batches seen at the last refresh: those up to the last multiple of ``refresh_every``."""
    return history[: (len(history) - 1) // refresh_every * refresh_every + 1]


def moments(features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    total = weights.sum()
    mean = sum(w * x for w, x in zip(weights, features, strict=True)) / total
    scatter = sum(
        w * torch.outer(x - mean, x - mean) for w, x in zip(weights, features, strict=True)
    )
    return mean, scatter / total


def shrunk(covariance: Tensor, amount: float) -> Tensor:
    return (1 - amount) * covariance + amount * mean_variance(covariance)


def mean_variance(covariance: Tensor) -> Tensor:
    """The mean variance times the identity."""
    return covariance.trace() / len(covariance) * torch.eye(len(covariance), dtype=torch.float64)


def kept(background, count: int) -> float:
    """What everything before a batch of ``count`` samples counts after it."""
    if background.decay != "auto":
        return background.decay
    width = background.rank if hasattr(background, "rank") else background.in_features
    return max(0.99, 1 - count / 50 / width)


def samples(
    history: History, background, count: Callable[[Tensor], int] = len
) -> tuple[Tensor, Tensor, Tensor]:
    """All features, all targets, and what each still counts: less with every later batch."""
    features = torch.cat([x for x, _ in history]).double()
    targets = torch.cat([y for _, y in history])
    weights, weight = [], 1.0
    for _, y in reversed(history):
        weights.append(torch.full((len(y),), weight, dtype=torch.float64))
        weight *= kept(background, count(y))
    return features, targets, torch.cat(weights[::-1])


def ledoit_wolf(features: Tensor, weights: Tensor) -> float:
    """The shrinkage of Ledoit and Wolf, its sample means taken with ``weights``."""
    mean, covariance = moments(features, weights)
    share = weights / weights.sum()
    distances = [(torch.outer(x - mean, x - mean) - covariance).square().sum() for x in features]
    noise = sum(s * d for s, d in zip(share, distances, strict=True)) * share.square().sum()
    return min(1.0, (noise / (covariance - mean_variance(covariance)).square().sum()).item())


def _shrink(background, covariance, features, weights):
    amount = background.shrinkage
    if amount == "ledoit-wolf":
        amount = max(ledoit_wolf(features, weights), LEAST_SHRINKAGE)
    return shrunk(covariance, amount)


def _total(background, history) -> Expected:
    features, _, weights = samples(history, background)
    mean, covariance = moments(features, weights)
    return Expected(mean, _shrink(background, covariance, features, weights).inverse())


def _one_vs_one(background, history) -> Expected:
    means, precisions = [], []
    for c in range(background.num_classes):
        features, targets, weights = samples(
            history, background, lambda y, c=c: int((y == c).sum())
        )
        own, mass = features[targets == c], weights[targets == c]
        mean, covariance = moments(own, mass)
        means.append(mean)
        precisions.append(_shrink(background, covariance, own, mass).inverse())
    return Expected(torch.stack(means), torch.stack(precisions))


def _one_vs_all(background, history) -> Expected:
    features, targets, weights = samples(history, background)
    classes = range(background.num_classes)
    masses = [weights[targets == c].sum() for c in classes]
    centers = [moments(features[targets == c], weights[targets == c])[0] for c in classes]
    _, within, ridge = _scatter(background, history)
    within = within + ridge * torch.eye(len(within), dtype=torch.float64)
    means, precisions = [], []
    for c in classes:
        others = [k for k in classes if k != c]
        mean, scatter = moments(
            torch.stack([centers[k] for k in others]), torch.stack([masses[k] for k in others])
        )
        means.append(mean)
        precisions.append((within + scatter).inverse())
    return Expected(torch.stack(means), torch.stack(precisions))


def _scatter(background, history) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the covariance within classes, and the ridge that the signal asks for."""
    features, targets, weights = samples(history, background)
    present = targets.unique().tolist()
    parts = [moments(features[targets == c], weights[targets == c]) for c in present]
    masses = torch.stack([weights[targets == c].sum() for c in present])
    squares = torch.stack([weights[targets == c].square().sum() for c in present])
    scatter = sum(m * covariance for m, (_, covariance) in zip(masses, parts, strict=True))
    within = scatter / (masses - squares / masses).sum()
    mean, between = moments(torch.stack([part[0] for part in parts]), masses)
    chance = squares @ (1 / masses) / masses.sum() - squares.sum() / masses.sum() ** 2
    chance = within.trace() * chance
    beta = min(between.trace(), max(between.trace() - chance, chance)) / (len(present) - 1)
    least = 1e-4 * (within.trace() / len(within) + beta)
    return mean, within, background.ridge * beta + least


def _within(background, history) -> Expected:
    mean, within, ridge = _scatter(background, history)
    return Expected(mean, (within + ridge * torch.eye(len(within), dtype=torch.float64)).inverse())


def _low_rank(background, history) -> Expected:
    mean, within, ridge = _scatter(background, history)
    full = _nystrom(background, within) + ridge * torch.eye(len(within), dtype=torch.float64)
    return Expected(mean, full.inverse())


def _low_rank_total(background, history) -> Expected:
    features, _, weights = samples(history, background)
    mean, covariance = moments(features, weights)
    full = _nystrom(background, covariance)
    return Expected(mean, shrunk(full, background.shrinkage).inverse())


def _nystrom(background, covariance: Tensor) -> Tensor:
    sketch = covariance @ background.probe.double()
    core = background.probe.double().T @ sketch
    low = sketch @ torch.linalg.solve(core, sketch.T)
    return low + (covariance - low).diagonal().diag()


REFERENCES: dict[type, Callable[..., Expected]] = {
    tl.backgrounds.LowRank: _low_rank,
    tl.backgrounds.LowRankTotal: _low_rank_total,
    tl.backgrounds.OneVsAll: _one_vs_all,
    tl.backgrounds.OneVsOne: _one_vs_one,
    tl.backgrounds.Total: _total,
    tl.backgrounds.Within: _within,
}


def ace(features: Tensor, signatures: Tensor, means: Tensor, precisions: Tensor) -> Tensor:
    """Eq. 3, one number at a time: (K, N, C) for K backgrounds, in each every signature."""
    scores = torch.empty(len(means), len(features), len(signatures), dtype=features.dtype)
    for k, (mean, precision) in enumerate(zip(means, precisions, strict=True)):
        for n, x in enumerate(features - mean):
            for c, s in enumerate(signatures):
                lengths = (s @ precision @ s).item(), (x @ precision @ x).item()
                scores[k, n, c] = (s @ precision @ x).item() / math.sqrt(lengths[0] * lengths[1])
    return scores
