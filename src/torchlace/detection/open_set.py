"""A classifier that rejects samples of no known class, and how often it errs in that."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, gen_batches
from sklearn.utils.validation import _num_samples, check_is_fitted
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count, check_number
from torchlace._sklearn import Array, as_array, fit_anew, refuse_masked
from torchlace._text import listed
from torchlace.detection.scores import SCORES, spread
from torchlace.detection.separation import conformal_threshold, samples_needed, separation
from torchlace.heads import Head
from torchlace.models import predict

# So many times as far from the mean as the farthest sample that was learned from is absurd.
_ABSURD = 2.0
# All absurd scores lie between twice this and this.
_LOWEST = -1e300


class Output(NamedTuple):
    """What a model says of samples: features, (N, d), logits, (N, C), and labels, (N,)."""

    features: Array
    logits: Array
    labels: Array

    def take(self, part: Array) -> Output:
        """Some of the samples."""
        return Output(*(values[part] for values in self))


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
    becomes a ``sklearn.frozen.FrozenEstimator`` in it. Scores below ``threshold_`` are rejected.

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
        parts = [scores]
        if self.per_class:
            parts = [scores[groups == each] for each in np.unique(groups)]
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
        return _run_model(self.model, X, self.batch_size, probable=self.score == "max-softmax")

    def __sklearn_clone__(self) -> Self:
        # scikit-learn would clone an estimator without what it was fitted to.
        params = self.get_params(deep=False)
        if hasattr(self.model, "fit") and not isinstance(self.model, (nn.Module, FrozenEstimator)):
            with suppress(NotFittedError):
                check_is_fitted(self.model)
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


def _run_model(model: Any, X: Any, batch_size: int, *, probable: bool = False) -> Output:
    """Features and logits in double precision, and labels, of samples as the model takes them.

    With ``probable`` logits are the logarithms of ``predict_proba``, of an estimator that has it.
    """
    refuse_masked(X, "X")
    if isinstance(model, nn.Module):
        found = _run_module(model, X, batch_size)
    else:
        found = _run_estimator(model, X, batch_size, probable)
    if not (np.isfinite(found.features).all() and np.isfinite(found.logits).all()):
        raise ValueError("features or logits hold NaN or infinite values: look at the samples")
    return found


def _run_module(model: nn.Module, X: Any, batch_size: int) -> Output:
    samples = X if isinstance(X, Tensor) else np.asarray(X)
    if isinstance(samples, np.ndarray) and samples.dtype.kind not in "biuf":
        raise TypeError(
            f"X must be an array or tensor of samples, all of one shape, got {type(X).__name__}"
        )
    samples = torch.as_tensor(samples)
    if not (isinstance(model, Head) or samples.is_floating_point()):
        raise TypeError(
            f"images must be floating point and prepared as for training, got {samples.dtype}: of "
            "a trained run, load_run(path).prepare(images); if the network prepares them itself, "
            "images.float()"
        )
    found = predict(model, samples.split(batch_size))
    features, logits = (values.double().cpu().numpy() for values in found)
    return Output(features, logits, logits.argmax(1))


def _run_estimator(model: Any, X: Any, batch_size: int, probable: bool) -> Output:
    probable = probable and hasattr(model, "predict_proba")
    if not (probable or hasattr(model, "decision_function")):
        raise TypeError(
            f"{type(model).__name__} has no decision_function; give a torchlace.Classifier, a "
            "head, or a classifier such as LACEClassifier"
        )
    # Of no samples there is a batch too, which the model refuses in its own words.
    count = max(_num_samples(X), 1)
    parts = [
        _ask(model, _safe_indexing(X, batch) if batch_size < count else X, probable)
        for batch in gen_batches(count, batch_size)
    ]
    return Output(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _ask(model: Any, X: Any, probable: bool) -> Output:
    ask = model.predict_proba if probable else model.decision_function
    logits = np.asarray(ask(X), dtype=np.float64)
    if probable:
        logits = np.log(np.maximum(logits, np.finfo(np.float64).tiny))
    elif logits.ndim == 1:
        # Two classes: what one gains the other loses.
        logits = np.stack([-logits, logits], axis=1) / 2
    features = model.transform(X) if hasattr(model, "transform") else X
    return Output(np.asarray(features, dtype=np.float64), logits, np.asarray(model.predict(X)))
