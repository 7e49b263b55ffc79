"""From a covariance to a whitening: shrinkage, Cholesky and Newton–Schulz."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def shrink(covariance: Tensor, amount: float | Tensor) -> Tensor:
    """Move a covariance (..., d, d) towards its mean variance times the identity.

    A covariance of zero, as one sample has, becomes the identity.

    Example:
        >>> shrink(torch.diag(torch.tensor([4.0, 0.0])), 0.5)
        tensor([[3., 0.],
                [0., 1.]])
    """
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    ridge = torch.where(variance > 0, amount * variance, 1)[..., None]
    if isinstance(amount, Tensor):
        amount = amount[..., None, None]
    shrunk = (1 - amount) * covariance
    shrunk.diagonal(dim1=-2, dim2=-1).add_(ridge)
    return shrunk


def ledoit_wolf(covariance: Tensor, fourth: Tensor, spread: Tensor) -> Tensor:
    """The shrinkage of Ledoit and Wolf (2004), in [0, 1], from running moments.

    Args:
        covariance: (..., d, d).
        fourth: mean of ‖x - mean‖⁴, (...).
        spread: one over the effective number of samples, (...).

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.0, -0.1]])
        >>> ledoit_wolf(x.T @ x / 3, x.square().sum(1).square().mean(), torch.tensor(1 / 3))
        tensor(0.3434)
    """
    variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)
    total = covariance.square().sum((-2, -1))
    distance = total - covariance.shape[-1] * variance.square()
    noise = torch.minimum((fourth - total) * spread, distance)
    return (noise / torch.where(distance > 0, distance, 1)).clamp(0, 1)


def cholesky_whitening(covariance: Tensor) -> Tensor:
    """Lower-triangular W with W Σ Wᵀ = I, for Σ of shape (..., d, d).

    Example:
        >>> cholesky_whitening(torch.diag(torch.tensor([4.0, 1.0])))
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    factor = cholesky(covariance)
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
    return inverse


def cholesky(matrix: Tensor) -> Tensor:
    """Lower Cholesky factor, NaN where the matrix is not positive definite; the host never waits.

    Example:
        >>> cholesky(torch.tensor([[4.0]])), cholesky(torch.tensor([[-1.0]]))
        (tensor([[2.]]), tensor([[nan]]))
    """
    factor, info = torch.linalg.cholesky_ex(matrix)
    return torch.where((info == 0)[..., None, None], factor, torch.nan)


def newton_schulz_whitening(covariance: Tensor, condition: float) -> Tensor:
    """Symmetric W = Σ^(-1/2) by matrix products alone, for Σ of shape (..., d, d).

    Args:
        covariance: positive definite.
        condition: a bound on its condition number, from which the number of iterations follows.

    Example:
        >>> newton_schulz_whitening(torch.diag(torch.tensor([4.0, 1.0])), 4.0)
        tensor([[0.5000, 0.0000],
                [0.0000, 1.0000]])
    """
    width = covariance.shape[-1]
    identity = torch.eye(width, dtype=covariance.dtype, device=covariance.device)
    norm = torch.linalg.matrix_norm(covariance)[..., None, None]
    root: Tensor = covariance / norm
    inverse: Tensor = identity.expand_as(covariance)
    for _ in range(newton_schulz_iterations(condition * math.sqrt(width))):
        step = 1.5 * identity - 0.5 * (inverse @ root)
        root, inverse = root @ step, step @ inverse
    inverse = inverse / norm.sqrt()
    return inverse


def newton_schulz_iterations(condition: float) -> int:
    """Iterations until the smallest eigenvalue, 1/condition, has converged.

    It grows by 3/2 an iteration to the order of one (on the scale of square roots), and then a few
    quadratic steps reach machine precision.
    """
    return math.ceil(math.log(math.sqrt(max(condition, 1.0))) / math.log(1.5)) + 6
