"""How well samples fit the classes a model knows: scores of features, logits and training samples.

Every score is a pair of pure functions: what to learn from features, (N, d), logits, (N, C), and
class indices, (N,), of known classes; and, from features, logits and what was learned, one number
a sample, high where it fits. All compute in the precision and on the device of what they get;
double precision is best.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlace.functional import ace as ace_statistic
from torchlace.functional import cholesky_whitening, ledoit_wolf, shrink, unit

# Exponent, and how many of the largest probabilities count, as GEN's authors have them.
_GEN_EXPONENT, _GEN_CLASSES = 0.1, 100
# One neighbour in so many training samples: the usual 50 among 50,000.
_SAMPLES_PER_NEIGHBOUR = 1000
# Distances in a block, of samples to training samples.
_BLOCK = 1 << 24


class Score(NamedTuple):
    """What a score learns from samples of known classes, and how it judges others by that."""

    learn: Callable[[Tensor, Tensor, Tensor], Any]
    """From features, logits and class indices."""
    judge: Callable[[Tensor, Tensor, Any], Tensor]
    """From features, logits and what was learned, (N,)."""


class Gaussians(NamedTuple):
    """Class means about one background: what ACE and Mahalanobis distances compare with."""

    means: Tensor
    """Of each class, (K, d)."""
    centre: Tensor
    """Mean of the class means, (d,)."""
    within: Tensor
    """Whitening of what varies within classes, (d, d)."""
    total: Tensor
    """Whitening of all that varies, (d, d)."""
    length: Tensor
    """Median of the samples' lengths about the centre, whitened by ``total``, ()."""


def gaussians(features: Tensor, logits: Tensor, classes: Tensor) -> Gaussians:
    """Means and whitenings, by covariances shrunk as Ledoit and Wolf advise.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [0.0, -1.0], [4.0, 1.0], [4.0, -1.0]])
        >>> gaussians(x, x, torch.tensor([0, 0, 1, 1])).centre
        tensor([2., 0.])
    """
    means = torch.stack([features[classes == index].mean(0) for index in classes.unique()])
    if len(means) < 2:
        raise ValueError(
            "the samples are of one class only, and scores of features compare two or more: give "
            'samples of all known classes, or use score="energy"'
        )
    _, own = classes.unique(return_inverse=True)
    within = whitening(features - means[own], " within the classes")
    total, centre = whitening(features - features.mean(0)), means.mean(0)
    length = _length((features - centre) @ total.mT).median()
    return Gaussians(means, centre, within, total, length)


def whitening(deviations: Tensor, where: str = "") -> Tensor:
    """W with WᵀW the inverse of the deviations' covariance, (d, d), shrunk by Ledoit and Wolf.

    Example:
        >>> whitening(torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0], [0.0, -2.0]]))
        tensor([[0.7071, 0.0000],
                [0.0000, 0.7071]])
    """
    covariance = deviations.mT @ deviations / len(deviations)
    if not covariance.any():
        raise ValueError(
            f"the features do not vary{where}, so nothing can be whitened: give more samples, or "
            "features that differ"
        )
    fourth = deviations.square().sum(1).square().mean()
    amount = ledoit_wolf(covariance, fourth, fourth.new_tensor(1 / len(deviations)))
    return cholesky_whitening(shrink(covariance, amount))


def _length(vectors: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return found


def _nearest(features: Tensor, means: Tensor, factor: Tensor) -> Tensor:
    """Squared Mahalanobis distance to the nearest mean, (N,)."""
    return torch.cdist(features @ factor.mT, means @ factor.mT).square().amin(1)


def max_softmax(features: Tensor, logits: Tensor, known: None) -> Tensor:
    return logits.softmax(1).amax(1)


def energy(features: Tensor, logits: Tensor, known: None) -> Tensor:
    return logits.logsumexp(1)


def max_logit(features: Tensor, logits: Tensor, known: None) -> Tensor:
    return logits.amax(1)


def gen(features: Tensor, logits: Tensor, known: None) -> Tensor:
    chances = logits.softmax(1)
    chances = chances.topk(min(_GEN_CLASSES, chances.shape[1]), dim=1).values
    return -(chances * (1 - chances)).pow(_GEN_EXPONENT).sum(1)


def mahalanobis(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    return -_nearest(features, known.means, known.within)


def relative_mahalanobis(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    background = _length((features - known.centre) @ known.total.mT).square()
    return background - _nearest(features, known.means, known.within)


def ace(features: Tensor, logits: Tensor, known: Gaussians) -> Tensor:
    options: dict[str, Any] = {"whitening": known.total, "centre_signatures": True}
    return ace_statistic(features, known.means, known.centre, **options).amax(1)


def nearest_neighbours(features: Tensor, logits: Tensor, known: Tensor) -> Tensor:
    k = max(round(len(known) / _SAMPLES_PER_NEIGHBOUR), 1)
    blocks = unit(features).split(max(_BLOCK // len(known), 1))
    return -torch.cat([torch.cdist(b, known).kthvalue(k, dim=1).values for b in blocks])


class Boundaries(NamedTuple):
    centre: Tensor
    distances: Tensor


def boundaries(features: Tensor, logits: Tensor, classes: Tensor) -> Boundaries:
    centre = features.mean(0)
    centred = features - centre
    inverse = torch.linalg.pinv(centred.mT @ centred, rtol=1e-9, hermitian=True)
    weights = (logits - logits.mean(0)).mT @ centred @ inverse
    apart = torch.cdist(weights, weights)
    return Boundaries(centre, apart)


def fdbd(features: Tensor, logits: Tensor, known: Boundaries) -> Tensor:
    best, own = logits.max(1)
    apart = known.distances[own]
    steps = torch.where(apart > 0, (best[:, None] - logits) / torch.where(apart > 0, apart, 1), 0)
    away = _length(features - known.centre)
    return steps.sum(1) / (logits.shape[1] - 1) / torch.where(away > 0, away, 1)
