"""How well samples fit the classes that a model knows, by every score there is a name for.

A score is two pure functions: one learns from features, (N, d), logits, (N, C), and class indices,
(N,), of samples of known classes; the other gives features and logits of any samples one number
each, high where a sample fits. They work in the precision and on the device of what they get.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlace.functional import ace as ace_statistic
from torchlace.functional import cholesky_whitening, ledoit_wolf, shrink, unit

# What the authors of GEN propose: the exponent, and how many of the largest probabilities count.
_EXPONENT, _LARGEST = 0.1, 100
# One neighbour for so many samples, which is the usual 50 for the training images of CIFAR.
_SAMPLES_PER_NEIGHBOUR = 1000
# Numbers in a block of distances between samples.
_BLOCK = 1 << 24


class Score(NamedTuple):
    """What a score learns from samples of known classes, and how it judges others by that.

    Example:
        >>> logits = torch.tensor([[9.0, 0.0], [1.0, 0.0]])
        >>> score = SCORES["max-softmax"]
        >>> score.judge(logits, logits, score.learn(logits, logits, torch.tensor([0, 0])))
        tensor([0.9999, 0.7311])
    """

    learn: Callable[[Tensor, Tensor, Tensor], Any]
    judge: Callable[[Tensor, Tensor, Any], Tensor]


class Spread(NamedTuple):
    """How samples spread about their mean."""

    mean: Tensor
    """(d,)."""
    whitening: Tensor
    """W with WᵀW the inverse of their covariance, (d, d)."""

    def lengths(self, features: Tensor) -> Tensor:
        """Mahalanobis distance to the mean, (N,)."""
        found: Tensor = torch.linalg.vector_norm((features - self.mean) @ self.whitening.mT, dim=1)
        return found


class Gaussians(NamedTuple):
    """Means of the classes, and what varies about them and about the mean of all."""

    means: Tensor
    """(K, d)."""
    centre: Tensor
    """Mean of the class means, (d,)."""
    within: Tensor
    """Whitens what varies within classes, (d, d)."""
    total: Spread
    """Of all samples."""
    distance: Tensor
    """Median distance of the samples to their nearest class mean, whitened by ``within``, ()."""

    def distances(self, features: Tensor) -> Tensor:
        """Mahalanobis distance to the nearest class mean, within classes, (N,)."""
        return torch.cdist(features @ self.within.mT, self.means @ self.within.mT).amin(1)


def nothing(features: Tensor, logits: Tensor, classes: Tensor) -> None:
    """What a score of logits alone learns."""


def gaussians(features: Tensor, logits: Tensor, classes: Tensor) -> Gaussians:
    """Class means and covariances, shrunk as Ledoit and Wolf advise."""
    present, own = classes.unique(return_inverse=True)
    if len(present) < 2:
        raise ValueError(
            "the samples are of one class only, and this score compares two or more: give samples "
            'of all known classes, or use score="energy"'
        )
    means = torch.stack([features[own == index].mean(0) for index in range(len(present))])
    total = spread(features)
    within = whitening(features - means[own], " within the classes")
    found = Gaussians(means, means.mean(0), within, total, features.new_ones(()))
    return found._replace(distance=found.distances(features).median())


def directions(features: Tensor, logits: Tensor, classes: Tensor) -> Gaussians:
    """The same of features scaled to length one."""
    return gaussians(unit(features), logits, classes)


def neighbours(features: Tensor, logits: Tensor, classes: Tensor) -> Tensor:
    """All samples, scaled to length one, (N, d)."""
    return unit(features)


class Boundaries(NamedTuple):
    """Where a linear map of features changes its mind."""

    mean: Tensor
    """Mean of all samples, (d,)."""
    slopes: Tensor
    """How fast the logits of two classes part on the way between them, (C, C)."""


def boundaries(features: Tensor, logits: Tensor, classes: Tensor) -> Boundaries:
    """Boundaries of the linear map that is nearest to the model's logits; a linear head's own."""
    mean = features.mean(0)
    centred = features - mean
    inverse = torch.linalg.pinv(centred.mT @ centred, rtol=1e-9, hermitian=True)
    weights = (logits - logits.mean(0)).mT @ centred @ inverse
    return Boundaries(mean, torch.cdist(weights, weights))


def spread(features: Tensor) -> Spread:
    """Mean and whitening of samples, (N, d)."""
    mean = features.mean(0)
    return Spread(mean, whitening(features - mean))


def whitening(deviations: Tensor, where: str = "") -> Tensor:
    """W with WᵀW the inverse of the deviations' covariance, (d, d), shrunk by Ledoit and Wolf."""
    covariance = deviations.mT @ deviations / len(deviations)
    if not covariance.any():
        raise ValueError(
            f"the features do not vary{where}, so nothing can be whitened: give more samples, or "
            "other features"
        )
    fourth = deviations.square().sum(1).square().mean()
    amount = ledoit_wolf(covariance, fourth, fourth.new_tensor(1 / len(deviations)))
    return cholesky_whitening(shrink(covariance, amount))


def max_softmax(features: Tensor, logits: Tensor, known: None) -> Tensor:
    """The largest probability (Hendrycks and Gimpel, 2017)."""
    return logits.softmax(1).amax(1)


def energy(features: Tensor, logits: Tensor, known: None) -> Tensor:
    """The logits' log-sum-exp (Liu et al., 2020)."""
    return logits.logsumexp(1)


def head(features: Tensor, logits: Tensor, known: None) -> Tensor:
    """The largest logit; of a LACE head the ACE it has learned (Hendrycks et al., 2022)."""
    return logits.amax(1)


def gen(features: Tensor, logits: Tensor, known: None) -> Tensor:
    """Minus the generalised entropy of the largest probabilities (Liu et al., 2023)."""
    chances = logits.softmax(1).topk(min(_LARGEST, logits.shape[1]), dim=1).values
    return -(chances * (1 - chances)).pow(_EXPONENT).sum(1)


def mahalanobis(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """Minus the squared distance to the nearest class mean (Lee et al., 2018)."""
    return -known.distances(features).square()


def relative_mahalanobis(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """The same, with the squared distance to the mean of all added (Ren et al., 2021)."""
    return known.total.lengths(features).square() - known.distances(features).square()


def normalised_mahalanobis(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """The Mahalanobis score of features scaled to length one (Müller and Hein, 2025)."""
    return mahalanobis(unit(features), logits, known)


def nearest_neighbours(features: Tensor, logits: Tensor, known: Tensor) -> Tensor:
    """Minus the distance of directions to the k-th nearest known sample (Sun et al., 2022)."""
    k = max(round(len(known) / _SAMPLES_PER_NEIGHBOUR), 1)
    blocks = unit(features).split(max(_BLOCK // len(known), 1))
    return -torch.cat([torch.cdist(each, known).kthvalue(k, dim=1).values for each in blocks])


def fdbd(features: Tensor, logits: Tensor, known: Boundaries) -> Tensor:
    """Mean distance to the boundaries, over that to the mean of all (Liu and Qin, 2024)."""
    largest, own = logits.max(1)
    slopes = known.slopes[own]
    away = torch.linalg.vector_norm(features - known.mean, dim=1)
    steps = (largest[:, None] - logits) / torch.where(slopes > 0, slopes, torch.inf)
    return steps.sum(1) / (logits.shape[1] - 1) / torch.where(away > 0, away, torch.inf)


def ace(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """The ACE to the nearest class mean, about their mean, whitened by all that varies."""
    return _cosines(features, known, known.total.whitening).amax(1)


def relative_ace(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """The ACE to the nearest class mean, whitened within classes, less the background's own.

    The background is all classes alike: what it scores is the mean over the class means.
    """
    scores = _cosines(features, known, known.within)
    return scores.amax(1) - scores.mean(1)


def ace_length(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    """The ACE, less for samples that lie farther from every class mean than usual."""
    far = known.distances(features) / known.distance
    return ace(features, logits, known) / far.clamp_min(1)


def _cosines(features: Tensor, known: Gaussians, factor: Tensor) -> Tensor:
    options: dict[str, Any] = {"whitening": factor, "centre_signatures": True}
    return ace_statistic(features, known.means, known.centre, **options)


SCORES: dict[str, Score] = {
    "max-softmax": Score(nothing, max_softmax),
    "energy": Score(nothing, energy),
    "head": Score(nothing, head),
    "gen": Score(nothing, gen),
    "mahalanobis": Score(gaussians, mahalanobis),
    "relative-mahalanobis": Score(gaussians, relative_mahalanobis),
    "mahalanobis++": Score(directions, normalised_mahalanobis),
    "nearest-neighbours": Score(neighbours, nearest_neighbours),
    "fdbd": Score(boundaries, fdbd),
    "ace": Score(gaussians, ace),
    "relative-ace": Score(gaussians, relative_ace),
    "ace-length": Score(gaussians, ace_length),
}
