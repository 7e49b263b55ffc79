"""Directions, cosines, angles and the ACE statistic."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace._torch import is_tracing, transforming


def unit(vectors: Tensor, least: float | None = None) -> Tensor:
    """Scale the last dimension to length one, at any magnitude; zero vectors stay zero.

    Squares neither overflow nor underflow (features of 1e±20 in fp32 are fine), and the gradient at
    a zero vector is finite. So is that at a short one, which would grow without bound: up to a
    length of ``least``, by default that of :func:`negligible`, a vector counts as zero.

    Example:
        >>> unit(torch.tensor([[3e20, 4e20], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if torch.compiler.is_compiling() or is_tracing():
        # The compiler fuses these by itself, and traces no function with a forward derivative;
        # what is traced for TorchScript can't be saved with one.
        least = negligible(vectors.dtype) if least is None else least
        vectors = vectors / magnitude(vectors, least)
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
        return vectors / torch.where(lengths > least, lengths, 1)
    directions: Tensor = _Unit.apply(vectors, least)[0]
    return directions


def negligible(dtype: torch.dtype) -> float:
    """The length up to which a vector counts as zero, since slopes over less may be infinite.

    Half precision, in which no head computes, has no room for it: there it is 0.

    Example:
        >>> negligible(torch.float32)  # slopes of 1e14 are finite
        2.1175824391332356e-22
    """
    return 0.0 if dtype == torch.float16 else float(torch.finfo(dtype).max) ** -0.5625


def cosine(vectors: Tensor, others: Tensor) -> Tensor:
    """Cosine between every row of ``vectors`` (N, d) and every row of ``others`` (C, d): (N, C).

    Example:
        >>> cosine(torch.eye(2), torch.tensor([[1.0, 1.0], [0.0, -2.0]]))
        tensor([[ 0.7071,  0.0000],
                [ 0.7071, -1.0000]])
    """
    return cosine_logits(vectors, others, 1.0)


def cosine_logits(
    vectors: Tensor, others: Tensor, scale: float | Tensor, least: float | None = None
) -> Tensor:
    """:func:`cosine` times ``scale``; ``least`` as in :func:`unit`, for ``vectors``.

    Example:
        >>> cosine_logits(torch.eye(2), torch.eye(2), 30.0)
        tensor([[30.,  0.],
                [ 0., 30.]])
    """
    plain = torch.compiler.is_compiling() or isinstance(scale, Tensor)
    if plain or vectors.dim() != 2 or others.dim() != 2:
        return (unit(vectors, least) * scale) @ unit(others).mT
    logits: Tensor = _Cosine.apply(vectors, others, scale, least)[0]
    return logits


def angle(vectors: Tensor, others: Tensor) -> Tensor:
    """Angle in [0, π] between corresponding rows, with a finite gradient everywhere.

    The arc cosine has an infinite slope at ±1; twice the arc tangent of the half-angle has none.

    Example:
        >>> angle(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor([0.7854])
    """
    a, b = unit(vectors), unit(others)
    apart, together = (torch.linalg.vector_norm(each, dim=-1) for each in (a - b, a + b))
    # Both are zero where both vectors are, and only there below 1: the slope of atan2 is 0 / 0.
    return 2 * torch.atan2(apart, torch.where(apart + together > 1, together, 1))


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
    def forward(vectors: Tensor, least: float | None) -> tuple[Tensor, Tensor]:
        lengths = row_lengths(vectors, least)
        return vectors / lengths, lengths

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, float | None], output: tuple[Tensor, Tensor]
    ) -> None:
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(ctx: Any, tangents: Tensor, _: None) -> tuple[Tensor, Tensor]:
        return _turned(tangents, *ctx.saved_tensors)

    @staticmethod
    def backward(
        ctx: Any, of_directions: Tensor | None, of_lengths: Tensor | None
    ) -> tuple[Tensor | None, None]:
        return _pulled(of_directions, of_lengths, *ctx.saved_tensors), None


class _Cosine(torch.autograd.Function):
    """Scaled cosines, and the directions and lengths of both sides.

    One function, so that the scale rides on the products and Python is entered once each way; the
    directions are results too, so that second derivatives go through them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        vectors: Tensor, others: Tensor, scale: float, least: float | None
    ) -> tuple[Tensor, ...]:
        lengths, sizes = row_lengths(vectors, least), row_lengths(others)
        directions, classes = vectors / lengths, others / sizes
        return _scaled(directions, classes.mT, scale), directions, lengths, classes, sizes

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[Tensor, Tensor, float, float | None],
        output: tuple[Tensor, ...],
    ) -> None:
        ctx.save_for_backward(*output[1:])
        ctx.save_for_forward(*output[1:])
        ctx.scale = inputs[2]
        ctx.set_materialize_grads(False)

    @staticmethod
    def jvp(
        ctx: Any, tangents: Tensor | None, others: Tensor | None, *_: None
    ) -> tuple[Tensor, ...]:
        directions, lengths, classes, sizes = ctx.saved_tensors
        zero = torch.zeros_like
        turn = _turned(zero(directions) if tangents is None else tangents, directions, lengths)
        spin = _turned(zero(classes) if others is None else others, classes, sizes)
        logits = (turn[0] @ classes.mT + directions @ spin[0].mT) * ctx.scale
        return logits, *turn, *spin

    @staticmethod
    def backward(ctx: Any, slopes: Tensor | None, *slopes_of_parts: Tensor | None) -> Any:
        directions, lengths, classes, sizes = ctx.saved_tensors
        to_directions, to_lengths, to_classes, to_sizes = slopes_of_parts
        slopes = None if slopes is None else slopes.to(directions.dtype)  # of autocast's halves
        if slopes is not None and ctx.needs_input_grad[0]:
            to_directions = _plus(to_directions, _scaled(slopes, classes, ctx.scale))
        to_vectors = _pulled(to_directions, to_lengths, directions, lengths)
        del to_directions
        if slopes is not None and ctx.needs_input_grad[1]:
            to_classes = _plus(to_classes, _scaled(slopes.mT, directions, ctx.scale))
        return to_vectors, _pulled(to_classes, to_sizes, classes, sizes), None, None


def _turned(tangents: Tensor, directions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """How directions and lengths move with their vectors."""
    along = (directions * tangents).sum(-1, keepdim=True)
    return (tangents - along * directions) / lengths, along


def _pulled(
    of_directions: Tensor | None, of_lengths: Tensor | None, directions: Tensor, lengths: Tensor
) -> Tensor | None:
    """The slope of vectors from those of their directions and lengths."""
    slope: Tensor | None = None
    if of_directions is not None:
        along = (of_directions * directions).sum(-1, keepdim=True)
        slope = torch.addcmul(of_directions, along, directions, value=-1)
        slope = slope / lengths if torch.is_grad_enabled() else slope.div_(lengths)
    return slope if of_lengths is None else _plus(slope, of_lengths * directions)


def _plus(slope: Tensor | None, more: Tensor) -> Tensor:
    return more if slope is None else slope + more


def _scaled(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """``scale`` times a product of matrices, in one operation."""
    if transforming():  # vmap would multiply what is left out by zero, NaN with it
        return (left @ right) * scale
    return torch.addmm(left.new_empty(1, 1), left, right, beta=0, alpha=scale)


def row_lengths(vectors: Tensor, least: float | None = None) -> Tensor:
    """Lengths of the last dimension, kept, 1 for vectors that count as zero; see :func:`unit`."""
    lengths: Tensor
    least = negligible(vectors.dtype) if least is None else least
    if vectors.dtype == torch.float32 and vectors.device.type != "mps":
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True, dtype=torch.float64)
        if not (torch.compiler.is_compiling() or transforming()):
            # Rounded on the way out: one operation less.
            return torch.threshold(lengths, least, 1, out=vectors.new_empty(lengths.shape))
        lengths = lengths.to(torch.float32)
    else:
        size = magnitude(vectors, least)
        lengths = torch.linalg.vector_norm(vectors / size, dim=-1, keepdim=True) * size
    return F.threshold(lengths, least, 1)  # one pass; NaN stays NaN


def _precision_cosine(features: Tensor, signatures: Tensor, precision: Tensor) -> Tensor:
    features, signatures = features / magnitude(features), signatures / magnitude(signatures)
    mapped, projected = features @ precision, signatures @ precision
    lengths = _root((mapped * features).sum(-1))[:, None] * _root((projected * signatures).sum(-1))
    return (features @ projected.mT) / torch.where(lengths > 0, lengths, 1)


def _root(squares: Tensor) -> Tensor:
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1).sqrt(), 0)


def magnitude(vectors: Tensor, least: float | None = None) -> Tensor:
    """The largest absolute entry of each row, 1 where the row counts as zero.

    Directions don't depend on it, so it has no gradient.
    """
    if vectors.shape[-1] == 0:
        return vectors.new_ones(*vectors.shape[:-1], 1)
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    least = negligible(vectors.dtype) if least is None else least
    return torch.where(largest > least, largest, 1)
