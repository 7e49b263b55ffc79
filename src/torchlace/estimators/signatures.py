"""Signatures of fixed unit vectors, by L-BFGS over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional as F

from torchlace.functional import unit


class Solution(NamedTuple):
    """Where the optimiser stopped."""

    signatures: Tensor
    """(C, d), of length one."""
    iterations: int
    converged: bool


def class_directions(vectors: Tensor, targets: Tensor, weights: Tensor, classes: int) -> Tensor:
    """Where each class lies from the mean of all, of length one, (C, d); zero without samples.

    Example:
        >>> class_directions(torch.eye(2), torch.tensor([0, 2]), torch.ones(2), 3)
        tensor([[ 0.7071, -0.7071],
                [ 0.0000,  0.0000],
                [-0.7071,  0.7071]])
    """
    mass = weights.new_zeros(classes).index_add(0, targets, weights)[:, None]
    sums = vectors.new_zeros(classes, vectors.shape[1])
    sums = sums.index_add(0, targets, vectors * weights[:, None])
    return unit(sums - mass * sums.sum(0) / mass.sum())


def fit_signatures(
    vectors: Tensor,
    targets: Tensor,
    weights: Tensor,
    start: Tensor,
    scale: float,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[str], None] | None = None,
) -> Solution:
    """Minimise the weighted cross-entropy of ``scale`` times the cosine to each signature.

    Args:
        vectors: samples of length one, (N, d).
        targets: class indices, (N,).
        weights: of the samples, (N,).
        start: signatures to start from, (C, d).
        scale: what cosines are multiplied by.
        max_iter: iterations at most.
        tol: the largest entry of the gradient at which the optimiser has converged.
        report: called with a line of text after each iteration.

    Example:
        >>> x, y = torch.eye(2), torch.arange(2)
        >>> found = fit_signatures(x, y, torch.ones(2), x, 5.0, max_iter=50, tol=1e-6)
        >>> found.signatures.round(decimals=1)
        tensor([[ 0.7000, -0.7000],
                [-0.7000,  0.7000]])
    """
    shares = weights / weights.sum()
    # Coordinates that all samples have in common are steep; L-BFGS wants them alike.
    pace = (1 + vectors.shape[1] * (shares @ vectors).square()) ** -0.25
    losses: list[float] = []

    def objective(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        point = torch.from_numpy(flat).to(start).view_as(start).requires_grad_()
        logits = vectors @ (scale * unit(point * pace)).mT
        loss = (F.cross_entropy(logits, targets, reduction="none") * shares).sum()
        (slope,) = torch.autograd.grad(loss, point)
        losses.append(loss.item())
        return losses[-1], slope.double().flatten().cpu().numpy()

    def callback(_: np.ndarray[Any, Any]) -> None:
        if report is not None:
            report(f"training loss {losses[-1]:.5f}")

    found = minimize(
        objective,
        (start / pace).double().flatten().cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options={
            "maxiter": max_iter,
            "maxls": 50,
            "gtol": tol,
            # Below what rounding leaves of the loss there is nothing to gain.
            "ftol": 16 * float(torch.finfo(vectors.dtype).eps),
        },
    )
    signatures = unit(torch.from_numpy(found.x).to(start).view_as(start) * pace)
    return Solution(signatures, int(found.nit), found.status != 1)
