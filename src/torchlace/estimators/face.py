"""What scikit-learn expects of a classifier of features, whatever is behind it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn

from torchlace._sklearn import Array, as_array, as_tensor, fit_anew
from torchlace._torch import find_device
from torchlace.estimators.samples import ROWS, Samples, merge_copies
from torchlace.heads import LACE, Head

_FLOATS = (np.float64, np.float32)


class FeatureClassifier(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    ClassifierMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Takes arrays and gives arrays, with an embedding and a head in between.

    Subclasses define :meth:`_train` and :meth:`_advance`, which leave ``embedding_`` and ``head_``.
    """

    embedding_: nn.Module
    head_: Head
    classes_: Array
    n_features_in_: int
    n_iter_: int
    class_weight: Any
    warm_start: bool
    device: str | torch.device
    random_state: Any
    verbose: bool

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from all samples; where that fails, nothing has changed.

        Args:
            X: features, (N, d), an array or a tensor.
            y: labels, (N,), of any type.
            sample_weight: of each sample, (N,): one of weight zero counts for nothing, one of
                weight two as two of weight one.
        """
        return fit_anew(self, lambda model: model._fit(X, y, sample_weight), keep=self.warm_start)

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        X, y, counts = self._checked(X, y, sample_weight, reset=True)
        self.classes_, targets = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least two classes, got one class only: "
                f"{self.classes_[0]!r}"
            )
        self._train(self._samples(X, targets, counts))

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from some more samples; where that fails, nothing has changed.

        Args:
            X: features, (N, d).
            y: labels, (N,).
            classes: all labels there will be; needed in the first call.
            sample_weight: as in :meth:`fit`.
        """
        return fit_anew(
            self, lambda model: model._partial_fit(X, y, classes, sample_weight), keep=True
        )

    def _partial_fit(self, X: Any, y: Any, classes: Any, sample_weight: Any) -> None:
        first = not hasattr(self, "classes_")
        X, y, counts = self._checked(X, y, sample_weight, reset=first)
        self._meet(y, classes)
        if hasattr(self, "head_"):
            self._to_device()
            X = X.astype(self.head_.temperature.cpu().numpy().dtype, copy=False)
        self._advance(self._samples(X, np.searchsorted(self.classes_, y), counts))

    def _meet(self, y: Array, classes: Any) -> None:
        """Know all classes, or raise."""
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all samples at once; give partial_fit a "
                "dictionary of weights, or sample_weight"
            )
        _check_partial_fit_first_call(self, classes)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y holds labels that are none of the classes {self.classes_}: {unknown}; name all "
                "classes in the first call to partial_fit"
            )

    def predict(self, X: Any) -> Array:
        """The label of every sample, (N,)."""
        logits = self._apply(X, Head.__call__)
        labels: Array = self.classes_[logits.argmax(axis=1)]
        return labels

    def decision_function(self, X: Any) -> Array:
        """Logits, (N, C); for two classes what the second has over the first, (N,)."""
        logits = self._apply(X, Head.__call__)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, calibrated where samples could be held out, (N, C)."""
        return self._apply(X, Head.probabilities)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of :meth:`predict_proba`, (N, C)."""
        return self._apply(X, lambda head, x: torch.log_softmax(head(x) / head.temperature, dim=1))

    def transform(self, X: Any) -> Array:
        """Features as the classes are compared in: embedded and, by LACE heads, whitened."""

        def compared(head: Head, x: Tensor) -> Tensor:
            whitened = head.whiten(x) if isinstance(head, LACE) else x
            return whitened[:, : self._n_features_out]

        return self._apply(X, compared)

    @property
    def _n_features_out(self) -> int:
        return self.head_.in_features

    def _train(self, samples: Samples) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _train")

    def _advance(self, samples: Samples) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _advance")

    def _checked(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Array, ...]:
        """Features, labels and weights as arrays, without samples of weight zero."""
        X, y = validate_data(self, as_array(X, "X"), as_array(y, "y"), dtype=_FLOATS, reset=reset)
        check_classification_targets(y)
        if reset:
            _check_not_tiny(X)
        sample_weight = as_array(sample_weight, "sample_weight")
        counts = _check_sample_weight(sample_weight, X, dtype=X.dtype)
        there = counts > 0
        if (counts < 0).any() or not there.any():
            raise ValueError(
                "sample_weight must hold no negative and some positive weight, got "
                f"{counts.min():g} to {counts.max():g}"
            )
        return (X, y, counts) if there.all() else (X[there], y[there], counts[there])

    def _samples(self, X: Array, targets: Array, counts: Array) -> Samples:
        """The samples on the device, with the weights of their classes."""
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        X, targets, counts = merge_copies(X, targets, counts, self._seed)
        balance = self._class_weights(np.bincount(targets, counts, len(self.classes_)))
        counts = counts.astype(X.dtype, copy=False)
        weights = counts * balance[targets].astype(X.dtype)
        if not weights.sum() > 0:
            raise ValueError(f"class_weight={self.class_weight} leaves no sample that counts")
        device = find_device(self.device)
        return Samples(*(as_tensor(part).to(device) for part in (X, targets, counts, weights)))

    def _class_weights(self, mass: Array) -> Array:
        """The weight of each class, of which the samples count so much, (C,)."""
        if self.class_weight is None:
            return np.ones(len(mass))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            seen = mass > 0
            return np.where(seen, mass.sum() / (seen.sum() * np.where(seen, mass, 1)), 1)
        balance: Array = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_
        )
        wrong = np.flatnonzero(~(np.isfinite(balance) & (balance >= 0)))
        if len(wrong):
            raise ValueError(
                f"class_weight must hold finite weights, none of them negative, got "
                f"{balance[wrong[0]]:g} for class {self.classes_.tolist()[wrong[0]]!r}: give 0 "
                "to a class that is not to count"
            )
        return balance

    def _apply(self, X: Any, function: Callable[[Head, Tensor], Tensor]) -> Array:
        """What ``function`` of head and embedded features gives, some thousand rows at a time."""
        check_is_fitted(self, "head_")
        X = validate_data(self, as_array(X, "X"), dtype=_FLOATS, reset=False)
        self._to_device()
        embedding, head = self.embedding_.eval(), self.head_.eval()
        with torch.inference_mode():
            parts = (embedding(x.to(head.temperature)) for x in as_tensor(X).split(ROWS))
            found: Array = torch.cat([function(head, part) for part in parts]).cpu().numpy()
        return found

    def _to_device(self) -> None:
        """Move what was fitted, perhaps on another machine, to the device of this one."""
        device = find_device(self.device)
        self.embedding_.to(device)
        self.head_.to(device)

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}", flush=True)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        # A model fitted on a GPU opens on a machine without one.
        modules = {name: part for name, part in state.items() if isinstance(part, nn.Module)}
        return {**state, **{name: copy.deepcopy(part).cpu() for name, part in modules.items()}}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _check_not_tiny(X: Array) -> None:
    """Raise if squares of all features vanish, or what would whiten them overflows."""
    limits = np.finfo(X.dtype)
    # Moments are in double precision whatever the features have, the whitening is not.
    least = max(np.finfo(np.float64).tiny ** 0.5, limits.tiny / limits.eps)
    peak = max(X.max(), -X.min())
    if 0 < peak < least:
        raise ValueError(
            f"the features are too small to be squared, none is larger than {peak:g}: rescale them"
        )
