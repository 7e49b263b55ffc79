"""A classifier that rejects samples of no known class, and how often it errs in that."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import nn

from torchlace._checks import check_choice, check_count, check_number
from torchlace._sklearn import Array, as_array, fit_anew
from torchlace._text import listed
from torchlace.detection.outputs import Output, run
from torchlace.detection.scores import SCORES, spread
from torchlace.detection.separation import separation

# So many times as far from the mean as the farthest sample that was learned from is absurd.
_ABSURD = 2.0
# All absurd scores lie between twice this and this.
_LOWEST = -1e300


@dataclass(eq=False, repr=False)
class OpenSet(BaseEstimator):  # type: ignore[misc]
    """A trained classifier that says "none of these" where a sample is like no known class.

    Args:
        model: a :class:`torchlace.Classifier`, which takes images; a head, which takes features;
            or a fitted classifier with the face of scikit-learn, which takes what it was fitted on.
        score: how well a sample fits the known classes, a name of
            ``torchlace.detection.SCORES``. docs/detection.md says what each is and which is good at
            what.
        false_rejection: the chance that a sample of a known class is rejected, at most.
        per_class: whether that holds for each class by itself, rather than for all together.
        unknown: the label of what is rejected; ``"auto"``: -1, and "unknown" among names.
        batch_size: samples in a step.

    A clone, as scikit-learn's searches make, keeps what ``model`` learned: a fitted estimator
    becomes a ``sklearn.frozen.FrozenEstimator`` in it.

    Attributes:
        threshold_: scores below it are rejected.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = load_digits(return_X_y=True)
        >>> known, train = y < 8, np.arange(len(y)) < 1000
        >>> model = LogisticRegression(max_iter=1000).fit(X[known & train], y[known & train])
        >>> guarded = OpenSet(model).fit(X[known & ~train], y[known & ~train])
        >>> (guarded.predict(X[~known]) == -1).mean() > 0.7
        np.True_
        >>> guarded.predict(X[:2] + 1000)
        array([-1, -1])
    """

    model: Any
    _: KW_ONLY
    score: str = "nearest-neighbours"
    false_rejection: float = 0.05
    per_class: bool = False
    unknown: Any = "auto"
    batch_size: int = 512

    def fit(self, X: Any, y: Any = None, *, train: tuple[Any, Any] | None = None) -> Self:
        """Learn the score, and find its threshold, on samples that the model was not trained on.

        One half of them, drawn at random, teaches the score what known classes look like. The
        threshold is set by the other half alone, so that of new samples of the same kind at most
        ``false_rejection`` are rejected on average, whatever their distribution, the score or the
        number of samples (split conformal prediction).

        Args:
            X: images, features or rows, as the model takes them.
            y: their classes, as the model names them; by default its own predictions.
            train: other samples, and their classes, to learn the score from, such as those the
                model was trained on. All of ``X`` then sets the threshold.
        """
        return fit_anew(self, lambda guarded: guarded._fit(X, y, train))

    def _fit(self, X: Any, y: Any, train: tuple[Any, Any] | None) -> None:
        check_choice("score", self.score, SCORES)
        check_count("batch_size", self.batch_size)
        check_number("false_rejection", self.false_rejection, 0, 1)
        output = self._run(X)
        if self._mark(output.labels) in self._labels(output):
            raise ValueError(
                f"unknown={self._mark(output.labels)!r} is one of the model's classes: give "
                "another label to what is rejected, such as unknown=None"
            )
        groups = self._groups(output, y)
        if train is None:
            order = np.random.default_rng(0).permutation(len(groups))
            held, rest = np.split(order, [math.ceil(len(order) / 2)])
            self._check_enough(groups, groups[held], share=2)
            self._learn(output.take(rest), groups[rest])
            output, groups = output.take(held), groups[held]
        else:
            self._check_enough(groups, groups)
            others = self._run(train[0])
            self._learn(others, self._groups(others, train[1]))
        scores = self._score(output)
        parts = (
            [scores[groups == each] for each in np.unique(groups)] if self.per_class else [scores]
        )
        self.threshold_ = min(conformal_threshold(part, self.false_rejection) for part in parts)

    def score_samples(self, X: Any) -> Array:
        """How well each sample fits the known classes, (N,).

        What lies twice as far from their mean as any sample that the score was learned from scores
        less than -1e300, and the less the farther: some scores see directions only.
        """
        check_is_fitted(self)
        return self._score(self._run(X))

    def decision_function(self, X: Any) -> Array:
        """The score less the threshold: negative where a sample is rejected."""
        return self.score_samples(X) - self.threshold_

    def predict(self, X: Any) -> Array:
        """The model's class of each sample, or ``unknown``."""
        check_is_fitted(self)
        output = self._run(X)
        rejected, labels = self._score(output) < self.threshold_, output.labels
        mark = np.asarray(self._mark(labels))
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

    def _run(self, X: Any) -> Output:
        return run(self.model, X, self.batch_size, probable=self.score == "max-softmax")

    def __sklearn_clone__(self) -> Self:
        # scikit-learn would clone an estimator without what it was fitted to.
        params = self.get_params(deep=False)
        frozen = isinstance(self.model, (nn.Module, FrozenEstimator))
        if not frozen and hasattr(self.model, "fit") and _is_fitted(self.model):
            params["model"] = FrozenEstimator(self.model)
        clone: Self = super(OpenSet, type(self)(**params)).__sklearn_clone__()
        return clone

    def _mark(self, labels: Array) -> Any:
        """The label of what is rejected, beside labels like these."""
        if not isinstance(self.unknown, str) or self.unknown != "auto":
            return self.unknown
        return "unknown" if all(isinstance(label, str) for label in labels.tolist()) else -1

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

    def _check_enough(self, given: Array, held: Array, share: int = 1) -> None:
        """Raise where too few samples set the threshold, of ``share`` times as many."""
        least = samples_needed(self.false_rejection)
        few = {label: int((held == label).sum()) for label in np.unique(given).tolist()}
        few = few if self.per_class else {None: len(held)}
        for label, count in few.items():
            if count < least:
                of = "known classes" if label is None else f"class {label!r}"
                half = " in the half that sets the threshold" * (share > 1)
                total = f": give about {share * least} or more" if share > 1 else ""
                raise ValueError(
                    f"false_rejection={self.false_rejection:g} needs {least} samples of {of}"
                    f"{half}, got {count}{total or ': give more'}, or raise it "
                    f"to {math.ceil(1e4 / (count + 1)) / 1e4:g} or more"
                )

    def _learn(self, output: Output, groups: Array) -> None:
        features, logits = torch.from_numpy(output.features), torch.from_numpy(output.logits)
        _, classes = np.unique(groups, return_inverse=True)
        self.learned_ = SCORES[self.score].learn(features, logits, torch.from_numpy(classes))
        self._spread = spread(features)
        self._limit = _ABSURD * self._spread.lengths(features).max()

    def _score(self, output: Output) -> Array:
        features, logits = torch.from_numpy(output.features), torch.from_numpy(output.logits)
        scores = SCORES[self.score].judge(features, logits, self.learned_)
        near = self._limit / self._spread.lengths(features)
        # What overflows on its way to a length is far.
        absurd = _LOWEST * (2 - near.nan_to_num(0))
        return torch.where(near >= 1, scores, absurd).numpy()


def _is_fitted(model: Any) -> bool:
    try:
        check_is_fitted(model)
    except NotFittedError:
        return False
    return True


def conformal_threshold(scores: npt.ArrayLike, rate: float) -> float:
    """The score that a new one of the same kind falls below with a chance of at most ``rate``.

    It is the ⌊(n + 1)·rate⌋-th of n from below: a new score is as likely to fall into each of the
    n + 1 gaps between them, whatever the distribution (split conformal prediction).

    Example:
        >>> conformal_threshold([0.3, 0.1, 0.2, 0.4], rate=0.4)
        0.2
    """
    values = np.sort(np.asarray(scores, dtype=np.float64))
    rank = _rank(len(values), rate)
    if rank < 1:
        raise ValueError(
            f"a rate of {rate:g} needs {samples_needed(rate)} scores or more, got {len(values)}"
        )
    return float(values[rank - 1])


def samples_needed(rate: float) -> int:
    """How many samples a promise of this rate takes.

    Example:
        >>> samples_needed(0.05)
        19
    """
    count = max(math.ceil(1 / check_number("rate", rate, 0, 1)) - 2, 1)
    return count if _rank(count, rate) else count + 1


def _rank(count: int, rate: float) -> int:
    # A hair more, so that 0.07 of 100 is 7.
    return math.floor((count + 1) * rate * (1 + 1e-12))
