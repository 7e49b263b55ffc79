"""What a trained model of any kind says of samples: features, logits and labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils import _safe_indexing, gen_batches
from sklearn.utils.validation import _num_samples
from torch import Tensor, nn

from torchlace._sklearn import Array, refuse_masked
from torchlace.heads import Head
from torchlace.models import predict


class Output(NamedTuple):
    """What a model says of samples."""

    features: Array
    """(N, d)."""
    logits: Array
    """(N, C)."""
    labels: Array
    """(N,)."""

    def take(self, part: Array) -> Output:
        """Some of the samples."""
        return Output(*(values[part] for values in self))


def run(model: Any, X: Any, batch_size: int, *, probable: bool = False) -> Output:
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
    samples = _samples(X)
    if not (isinstance(model, Head) or samples.is_floating_point()):
        raise TypeError(
            f"images must be floating point and prepared as for training, got {samples.dtype}: of "
            "a trained run, load_run(path).prepare(images); if the network prepares them itself, "
            "images.float()"
        )
    found = predict(model, samples.split(batch_size))
    features, logits = (values.double().cpu().numpy() for values in found)
    return Output(features, logits, logits.argmax(1))


def _samples(X: Any) -> Tensor:
    if isinstance(X, Tensor):
        return X
    array = np.asarray(X)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"X must be an array or tensor of samples, all of one shape, got {type(X).__name__}"
        )
    return torch.as_tensor(array)


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
