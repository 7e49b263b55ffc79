"""What all estimators with the face of scikit-learn need: whole fits, arrays from anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]
Estimator = TypeVar("Estimator")


def fit_anew(
    estimator: Estimator, learn: Callable[[Estimator], None], *, keep: bool = False
) -> Estimator:
    """Let ``learn`` fit a copy, which the estimator becomes if there was no error.

    The copy has forgotten earlier fits, unless it is to ``keep`` them and go on from there.
    """
    model = copy.copy(estimator)
    for name in [name for name in vars(model) if name.endswith("_") and not keep]:
        delattr(model, name)
    learn(model)
    estimator.__dict__ = model.__dict__
    return estimator


def refuse_masked(values: Any, name: str) -> None:
    """Raise if some values are masked, where leaving them out has no meaning."""
    if np.ma.is_masked(values):
        raise ValueError(
            f"{np.ma.getmaskarray(values).sum()} values of {name} are masked: leave these "
            "samples out, X[~np.ma.getmaskarray(X).any(axis=1)], or fill the values in"
        )


def as_array(values: Any, name: str) -> Any:
    """Tensors as arrays, half precision as float32; all else as it is, unless masked."""
    refuse_masked(values, name)
    if not isinstance(values, Tensor):
        return values
    half = values.dtype in (torch.half, torch.bfloat16)
    return (values.float() if half else values).numpy(force=True)


def as_tensor(array: Array, dtype: npt.DTypeLike | None = None) -> Tensor:
    """An array as a tensor, in the same memory if torch can use it."""
    # Torch warns of memory that can't be written to, whether it wants to or not.
    return torch.from_numpy(np.require(array, dtype, ["C", "W"]))
