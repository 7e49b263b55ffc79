"""Rejecting samples that belong to no known class."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.covariance import ledoit_wolf
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count, check_number
from torchlace._sklearn import Array, as_array, fit_anew
from torchlace._text import listed
from torchlace.detection.outputs import Output, run
from torchlace.functional import ace, cholesky_whitening

Score = Literal["ace", "head", "max-softmax", "energy", "mahalanobis"]
SCORES: tuple[Score, ...] = get_args(Score)
_FOLDS = 5


@dataclass(eq=False, repr=False)
class OpenSet(BaseEstimator):  # type: ignore[misc]
    """A trained classifier that says "none of these" where a sample is like no known class.

    Args:
        model: a :class:`torchlace.Classifier`, which takes images; a head, which takes features;
            or a fitted classifier with the face of scikit-learn, which takes what it was fitted on.
        score: how well a sample fits the known classes. ``"ace"``: its ACE to the nearest class
            mean in feature space, about the mean of these and whitened by the covariance of all
            samples (Ledoit–Wolf). ``"head"``: the model's largest logit, for a LACE head the ACE
            it has learned. ``"max-softmax"``, ``"energy"`` (the logits' log-sum-exp) and
            ``"mahalanobis"`` (minus the squared distance to the nearest class mean, with the
            covariance within the classes) are the usual ones.
        false_rejection: the chance that a sample of a known class is rejected.
        unknown: the label of what is rejected.
        batch_size: samples in a step.

    Attributes:
        threshold_: scores below it are rejected.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_digits(return_X_y=True)
        >>> known, train = y < 8, np.arange(len(y)) < 1000
        >>> model = LogisticRegression(max_iter=1000).fit(X[known & train], y[known & train])
        >>> guarded = OpenSet(model).fit(X[known & ~train], y[known & ~train])
        >>> (guarded.predict(X[~known]) == -1).mean().round(2)
        np.float64(0.75)
    """

    model: Any
    _: KW_ONLY
    score: Score = "ace"
    false_rejection: float = 0.05
    unknown: Any = -1
    batch_size: int = 512

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the threshold on samples of known classes that the model was not trained on.

        With N samples and scores that do not depend on them, a new sample of the same kind is
        rejected with a chance of at most ``false_rejection``, whatever the distribution. Class
        means and covariance of ``"ace"`` and ``"mahalanobis"`` do depend on them; there the
        samples are scored in five parts, each by the statistics of the others, and a new sample
        by the mean over these five, since statistics of more samples would give other scores.

        Args:
            X: images, features or rows, as the model takes them.
            y: their classes, as the model names them; by default its own predictions.
        """
        return fit_anew(self, lambda guarded: guarded._fit(X, y))

    def _fit(self, X: Any, y: Any) -> None:
        check_choice("score", self.score, SCORES)
        check_count("batch_size", self.batch_size)
        rate = check_number("false_rejection", self.false_rejection, 0, 1)
        output = run(self.model, X, self.batch_size)
        if self.unknown in self._labels(output):
            raise ValueError(
                f"unknown={self.unknown!r} is one of the model's classes: give another label to "
                "what is rejected, such as unknown=None"
            )
        groups = self._groups(output, y)
        count = len(output.features)
        rank = int(rate * (count + 1))
        if rank < 1:
            raise ValueError(
                f"false_rejection={rate:g} needs {int(np.ceil(1 / rate)) - 1} samples of known "
                f"classes or more, got {count}"
            )
        self.statistics_: list[_Classes] = []
        if self.score in ("ace", "mahalanobis"):
            if count < _FOLDS:
                raise ValueError(
                    f"score={self.score!r} needs {_FOLDS} samples of known classes or more, got "
                    f"{count}"
                )
            scores = np.empty(count)
            for others, part in KFold(_FOLDS, shuffle=True, random_state=0).split(scores):
                known = _class_statistics(
                    output.features[others], groups[others], within=self.score == "mahalanobis"
                )
                scores[part] = self._score(output.take(part), [known])
                self.statistics_.append(known)
        else:
            scores = self._score(output, [])
        self.threshold_ = float(np.sort(scores)[rank - 1])

    def score_samples(self, X: Any) -> Array:
        """How well each sample fits the known classes, (N,)."""
        check_is_fitted(self)
        return self._score(run(self.model, X, self.batch_size), self.statistics_)

    def decision_function(self, X: Any) -> Array:
        """The score less the threshold: negative where a sample is rejected."""
        return self.score_samples(X) - self.threshold_

    def predict(self, X: Any) -> Array:
        """The model's class of each sample, or ``unknown``."""
        check_is_fitted(self)
        output = run(self.model, X, self.batch_size)
        rejected = self._score(output, self.statistics_) < self.threshold_
        mark, labels = np.asarray(self.unknown), output.labels
        alike = mark.dtype.kind == labels.dtype.kind
        dtype = np.result_type(mark, labels) if alike else np.dtype(object)
        return np.where(rejected, mark.astype(dtype), labels.astype(dtype))

    def evaluate(self, known: Any, unknown: Any) -> dict[str, float]:
        """:func:`separation` of samples of known and of unknown classes, and the share rejected."""
        inside, outside = self.score_samples(known), self.score_samples(unknown)
        return {
            **separation(inside, outside),
            "rejected_known": float((inside < self.threshold_).mean()),
            "rejected_unknown": float((outside < self.threshold_).mean()),
        }

    def _labels(self, output: Output) -> list[Any]:
        """The model's classes; numbers from 0 where it has no names for them."""
        labels = getattr(self.model, "classes_", None)
        labels = np.arange(output.logits.shape[1]) if labels is None else np.asarray(labels)
        found: list[Any] = labels.tolist()
        return found

    def _groups(self, output: Output, y: Any) -> Array:
        """The class of each sample, (N,)."""
        if y is None:
            return output.labels
        groups = np.asarray(as_array(y, "y"))
        if groups.shape != (len(output.features),):
            raise ValueError(
                f"y must have shape ({len(output.features)},), one class for each sample, got "
                f"{groups.shape}"
            )
        # What another kind of model calls its classes is not known unless it says so.
        if isinstance(self.model, nn.Module) or hasattr(self.model, "classes_"):
            known = self._labels(output)
            given = dict.fromkeys(groups.tolist())
            strange = [repr(label) for label in given if label not in known]
            if strange:
                raise ValueError(
                    f"y holds labels that are none of the model's classes: {listed(strange)}; "
                    f"expected some of {listed([*map(repr, known)])}: leave samples of other "
                    "classes out, and label these as for the model's own training"
                )
        return groups

    def _score(self, output: Output, known: list[_Classes]) -> Array:
        if self.score == "head":
            found: Array = output.logits.max(1)
            return found
        logits, features = torch.from_numpy(output.logits), torch.from_numpy(output.features)
        if self.score == "max-softmax":
            return logits.softmax(1).amax(1).numpy()
        if self.score == "energy":
            return logits.logsumexp(1).numpy()
        fit = _Classes.cosine if self.score == "ace" else _Classes.closeness
        return torch.stack([fit(each, features) for each in known]).mean(0).numpy()


def separation(known: npt.ArrayLike, unknown: npt.ArrayLike) -> dict[str, float]:
    """How well scores tell known samples from unknown ones.

    Returns:
        ``auroc``: the chance that a known sample scores above an unknown one;
        ``fpr_at_95_recall``: the share of unknown samples that score at least as high as the 95 %
        of known samples with the highest scores.

    Example:
        >>> separation([0.9, 0.8, 0.7], [0.1, 0.85])
        {'auroc': 0.6666666666666666, 'fpr_at_95_recall': 0.5}
    """
    inside, outside = (np.asarray(scores, dtype=np.float64) for scores in (known, unknown))
    if not len(inside) or not len(outside):
        raise ValueError("separation needs scores of known and of unknown samples")
    labels = np.repeat([1, 0], [len(inside), len(outside)])
    area = roc_auc_score(labels, np.concatenate([inside, outside]))
    accepted = outside >= np.quantile(inside, 0.05, method="lower")
    return {"auroc": float(area), "fpr_at_95_recall": float(accepted.mean())}


class _Classes(NamedTuple):
    """Class means, (C, d), their mean, (d,), and a whitening, (d, d)."""

    means: Tensor
    mean: Tensor
    whitening: Tensor

    def cosine(self, features: Tensor) -> Tensor:
        """The ACE of features to the nearest class mean, (N,)."""
        means, mean, whitening = self
        return ace(features, means, mean, whitening=whitening, centre_signatures=True).amax(1)

    def closeness(self, features: Tensor) -> Tensor:
        """Minus the squared Mahalanobis distance of features to the nearest class mean, (N,)."""
        white, means = features @ self.whitening.mT, self.means @ self.whitening.mT
        return -torch.cdist(white, means).amin(1).square()


def _class_statistics(features: Array, groups: Array, *, within: bool) -> _Classes:
    """Class means, and the whitening of what varies within classes or of all that varies."""
    present, index = np.unique(groups, return_inverse=True)
    if len(present) < 2:
        raise ValueError(
            "the samples are of one class only, and ACE compares two or more: give samples of all "
            'known classes, or use score="energy"'
        )
    means = np.stack([features[index == c].mean(0) for c in range(len(present))])
    deviations = features - (means[index] if within else features.mean(0))
    covariance, _ = ledoit_wolf(deviations, assume_centered=True)
    whitening = cholesky_whitening(torch.from_numpy(covariance))
    if not torch.isfinite(whitening).all():
        raise ValueError(
            f"the features do not vary{' within the classes' * within}, so nothing can be "
            'whitened: give more samples, or use score="head"'
        )
    centres = torch.from_numpy(means)
    return _Classes(centres, centres.mean(0), whitening)
