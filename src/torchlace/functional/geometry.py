"""Directions, cosines, angles and the ACE statistic."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def unit(vectors: Tensor) -> Tensor:
    """Scale the last dimension to length one, at any magnitude; zero vectors stay zero.

    Squares neither overflow nor underflow (features of 1e±20 in fp32 are fine), and the gradient at
    a zero vector is finite.

    Example:
        >>> unit(torch.tensor([[3e20, 4e20], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if torch.compiler.is_compiling():
        # The compiler fuses these by itself, and traces no function with a forward derivative.
        vectors = vectors / magnitude(vectors)
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        return vectors / torch.where(lengths > 0, lengths, 1)
    directions: Tensor = _Unit.apply(vectors)[0]
    return directions


def cosine(vectors: Tensor, others: Tensor) -> Tensor:
    """Cosine between every row of ``vectors`` (N, d) and every row of ``others`` (C, d): (N, C).

    Example:
        >>> cosine(torch.eye(2), torch.tensor([[1.0, 1.0], [0.0, -2.0]]))
        tensor([[ 0.7071,  0.0000],
                [ 0.7071, -1.0000]])
    """
    return unit(vectors) @ unit(others).mT


def cosine_logits(vectors: Tensor, others: Tensor, scale: float | Tensor) -> Tensor:
    """:func:`cosine` times ``scale``, the scale applied to the smaller matrix.

    Example:
        >>> cosine_logits(torch.eye(2), torch.eye(2), 30.0)
        tensor([[30.,  0.],
                [ 0., 30.]])
    """
    return (unit(vectors) * scale) @ unit(others).mT


def angle(vectors: Tensor, others: Tensor) -> Tensor:
    """Angle in [0, π] between corresponding rows, with a finite gradient everywhere.

    The arc cosine has an infinite slope at ±1; twice the arc tangent of the half-angle has none.

    Example:
        >>> angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([0.7854])
    """
    a, b = unit(vectors), unit(others)
    return 2 * torch.atan2(
        torch.linalg.vector_norm(a - b, dim=-1), torch.linalg.vector_norm(a + b, dim=-1)
    )


def ace(
    features: Tensor,
    signatures: Tensor,
    mean: Tensor | None = None,
    *,
    precision: Tensor | None = None,
    whitening: Tensor | None = None,
    centre_signatures: bool = False,
    squared: bool = False,
) -> Tensor:
    r"""Adaptive cosine estimator (Eq. 3) of every sample against every signature.

    .. math:: D(x, s) = \frac{s^T Σ^{-1} (x - μ)}
              {\sqrt{s^T Σ^{-1} s}\,\sqrt{(x - μ)^T Σ^{-1} (x - μ)}}

    The defaults are the paper's. Classical detectors subtract the mean from the signature too
    (``centre_signatures=True``) and often square the statistic (``squared=True``).

    Args:
        features: samples, (N, d).
        signatures: one row for each target or class, (C, d).
        mean: background mean μ, (d,); none is subtracted if omitted.
        precision: inverse background covariance Σ⁻¹, (d, d).
        whitening: alternatively any W, (k, d), with WᵀW = Σ⁻¹. Neither of the two: the identity.
        centre_signatures: subtract ``mean`` from the signatures as well.
        squared: return the square, in [0, 1].

    Returns:
        Scores in [-1, 1], (N, C). A sample or signature of length zero scores 0.

    Example:
        >>> x = torch.tensor([[3.0, 1.0]])
        >>> ace(x, torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 1.0]), precision=torch.eye(2))
        tensor([[1.]])
    """
    if precision is not None and whitening is not None:
        raise ValueError("give either precision or whitening, not both: one determines the other")
    if centre_signatures and mean is None:
        raise ValueError(
            "centre_signatures=True needs the mean to subtract, and there is none: give mean=, or "
            "leave centre_signatures out"
        )
    if mean is not None:
        features = features - mean
        signatures = signatures - mean if centre_signatures else signatures
    if whitening is not None:
        scores = cosine(features @ whitening.mT, signatures @ whitening.mT)
    elif precision is not None:
        scores = _precision_cosine(features, signatures, precision)
    else:
        scores = cosine(features, signatures)
    return scores.square() if squared else scores


class _Unit(torch.autograd.Function):
    """Directions and lengths. By hand: two passes forward and two backward, instead of a dozen."""

    generate_vmap_rule = True

    @staticmethod
    def forward(vectors: Tensor) -> tuple[Tensor, Tensor]:
        lengths = row_lengths(vectors)
        return vectors / lengths, lengths

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, tangents: Tensor) -> tuple[Tensor, Tensor]:
        directions, lengths = ctx.saved_tensors
        along = (directions * tangents).sum(-1, keepdim=True)
        return (tangents - along * directions) / lengths, along

    @staticmethod
    def backward(
        ctx: Any, of_directions: Tensor | None, of_lengths: Tensor | None
    ) -> Tensor | None:
        directions, lengths = ctx.saved_tensors
        slope: Tensor | None = None
        if of_directions is not None:
            along = (of_directions * directions).sum(-1, keepdim=True)
            slope = torch.addcmul(of_directions, along, directions, value=-1) / lengths
        if of_lengths is not None:
            slope = of_lengths * directions if slope is None else slope + of_lengths * directions
        return slope


# Torch asks for the signature at every call, and working it out takes a quarter of the call.
_Unit.forward.__signature__ = inspect.signature(_Unit.forward)  # type: ignore[attr-defined]


def row_lengths(vectors: Tensor) -> Tensor:
    """Lengths of the last dimension, kept, 1 for zero vectors; squares of fp32 never overflow."""
    lengths: Tensor
    if vectors.dtype == torch.float32 and vectors.device.type != "mps":
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=torch.float64)
        lengths = lengths.to(torch.float32)
    else:
        size = magnitude(vectors)
        lengths = torch.linalg.vector_norm(vectors / size, dim=-1, keepdim=True) * size
    return F.threshold(lengths, 0, 1)  # one pass; NaN stays NaN


def _precision_cosine(features: Tensor, signatures: Tensor, precision: Tensor) -> Tensor:
    features, signatures = features / magnitude(features), signatures / magnitude(signatures)
    mapped, projected = features @ precision, signatures @ precision
    lengths = _root((mapped * features).sum(-1))[:, None] * _root((projected * signatures).sum(-1))
    return (features @ projected.mT) / torch.where(lengths > 0, lengths, 1)


def _root(squares: Tensor) -> Tensor:
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)


def magnitude(vectors: Tensor) -> Tensor:
    """The largest absolute entry of each row; directions don't depend on it, so no gradient."""
    if vectors.shape[-1] == 0:
        return vectors.new_ones(*vectors.shape[:-1], 1)
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    return torch.where(largest > 0, largest, 1)
