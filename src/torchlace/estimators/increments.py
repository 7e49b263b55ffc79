"""Samples and classes that come later, or go, where sums are all that is learned."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from torchlace._sklearn import Array, as_tensor, fit_anew
from torchlace.estimators.head import AdamClassifier
from torchlace.estimators.known import Known, joined_labels
from torchlace.estimators.samples import Samples
from torchlace.estimators.sums import sums_of


class Incremental(AdamClassifier):
    """A classifier that follows from what is known; only behind hidden layers Adam trains it.

    Subclasses define :meth:`_renew`.
    """

    known_: Known

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from some more samples, also of new classes; where that fails, nothing has changed.

        The result is that of :meth:`fit` with ``refine=False`` on all samples so far, in whatever
        order they came; only the scale is approximate, by what was known when each came.

        Args:
            X: features, (N, d).
            y: labels, (N,).
            classes: labels of samples that are still to come; they need not be named. With
                ``hidden`` all labels there will be, in the first call.
            sample_weight: as in :meth:`fit`.

        Example:
            >>> from torchlace.estimators import LACEClassifier
            >>> model = LACEClassifier().partial_fit([[0.0], [1.0], [5.0]], ["a", "a", "b"])
            >>> model.partial_fit([[9.0], [9.5]], ["c", "c"]).predict([[0.5], [9.2]]).tolist()
            ['a', 'c']
        """
        super().partial_fit(X, y, classes, sample_weight)
        return self

    def merge(self, other: Incremental) -> Self:
        """Add what another classifier has learned, as if its samples had come here.

        The result is in closed form, as after :meth:`partial_fit`.

        Example:
            >>> from torchlace.estimators import LACEClassifier
            >>> here = LACEClassifier().fit([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
            >>> there = LACEClassifier().fit([[4.5], [5.5], [9.0], [9.5]], [1, 1, 2, 2])
            >>> here.merge(there).predict([[0.5], [5.0], [9.2]]).tolist()
            [0, 1, 2]
        """
        return fit_anew(self, lambda model: model._merge(other), keep=True)

    def forget(self, label: Any, X: Any = None, sample_weight: Any = None) -> Self:
        """Take a class away.

        What its samples told of the covariance within classes stays, unless they are given once
        more: then all is as if they had never come. The result is in closed form.

        Args:
            label: of the class.
            X: all its samples, (N, d).
            sample_weight: as it was given with them.

        Example:
            >>> from torchlace.estimators import LACEClassifier
            >>> X, y = [[0.0], [1.0], [4.0], [5.0], [9.0], [9.5]], [0, 0, 1, 1, 2, 2]
            >>> LACEClassifier().fit(X, y).forget(1).predict([[4.0], [6.0]]).tolist()
            [0, 2]
        """
        return fit_anew(self, lambda model: model._forget(label, X, sample_weight), keep=True)

    def _meet(self, y: Array, classes: Any) -> None:
        if self.hidden is not None:
            return super()._meet(y, classes)
        known = [self.classes_] if hasattr(self, "classes_") else []
        named = [] if classes is None else [np.asarray(classes)]
        self.classes_ = joined_labels(*known, *named, np.unique(y))
        return None

    def _merge(self, other: Incremental) -> None:
        self._need_sums()
        other._need_sums()
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(
                f"merge needs classifiers of the same features, these have {self.n_features_in_} "
                f"and {other.n_features_in_}"
            )
        self._restart(self.known_.join(other.known_))

    def _forget(self, label: Any, X: Any, sample_weight: Any) -> None:
        self._need_sums()
        sums = None
        if X is not None:
            y = np.full(len(X), label)
            X, y, counts = self._checked(X, y, sample_weight, reset=False)
            own = (X, np.zeros(len(y), dtype=np.int64), counts, counts)
            sums = sums_of(Samples(*(as_tensor(part) for part in own)), 1)
        self._restart(self.known_.forget(label, sums))

    def _need_sums(self) -> None:
        if self.hidden is not None:
            raise ValueError(
                "merge and forget need the closed form: leave out hidden, and fit anew"
            )
        check_is_fitted(self, "known_")

    def _restart(self, known: Known) -> None:
        self.known_, self.classes_ = known, known.classes
        if len(known.classes) < 2:
            raise ValueError(f"that leaves one class only: {known.classes.tolist()[0]!r}")
        self._renew()

    def _renew(self) -> None:
        """Follow from what is known now."""
        raise NotImplementedError(f"{type(self).__name__} must define _renew")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "known_" in state:
            state["known_"] = state["known_"].to("cpu")
        return state
