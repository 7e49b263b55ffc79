"""Backgrounds learned by gradient descent, as the paper's is, common to all classes."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count
from torchlace._precision import compute_dtype, widened
from torchlace.backgrounds.base import Background

Form = Literal["factor", "cholesky", "matrix"]


class LearnedMean(Background):
    """A background whose mean is a parameter: one, (d,), or one for each class, (C, d)."""

    location: Tensor

    def __init__(
        self,
        *sizes: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, **options)
        zeros = torch.zeros(sizes[::-1], device=device, dtype=dtype)
        if self.has_mean:
            self.location = nn.Parameter(zeros)
        else:
            zeros = zeros.to(compute_dtype(zeros))
            self.register_buffer("location", zeros, persistent=False)

    @property
    def mean(self) -> Tensor:
        """μ, (d,) or (C, d); zero where it is switched off."""
        return self.location


class Learned(LearnedMean):
    """A background whose mean and covariance are learned by gradient descent.

    Args:
        in_features: width of the features.
        form: what the parameter is. ``"factor"``: W itself, from the identity. ``"cholesky"``: the
            Cholesky factor L of Σ⁻¹, its diagonal kept positive, from the identity. ``"matrix"``:
            the paper's M with Σ = MMᵀ, from a standard-normal start, and a random mean; whitening
            solves against M and decomposes nothing.
        device: as in torch layers.
        dtype: as in torch layers.
        **options: ``mean`` and ``covariance``, as for :class:`Background`.

    Example:
        >>> background = Learned(3, form="cholesky")
        >>> background.whiten(torch.ones(1, 3))
        tensor([[1., 1., 1.]], grad_fn=<MmBackward0>)
    """

    _shown = ("form",)

    def __init__(
        self,
        in_features: int,
        *,
        form: Form = "factor",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, device=device, dtype=dtype, **options)
        self.form = check_choice("form", form, ("factor", "cholesky", "matrix"))
        self.matrix: nn.Parameter | None = None
        if self.has_covariance:
            square = torch.empty(in_features, in_features, device=device, dtype=dtype)
            self.matrix = nn.Parameter(square)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again."""
        with torch.no_grad():
            self.location.zero_()
            if self.form == "matrix":
                bound = 1 / math.sqrt(self.in_features)
                if self.has_mean:
                    self.location.uniform_(-bound, bound)
                if self.matrix is not None:
                    self.matrix.normal_()
            elif self.matrix is not None:
                self.matrix.zero_()
                if self.form == "factor":
                    self.matrix.fill_diagonal_(1)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if self.matrix is None:
            return vectors
        matrix = widened(self.matrix, vectors.dtype)
        if self.form == "factor":
            return vectors @ matrix.mT
        if self.form == "cholesky":
            return vectors @ (matrix.tril(-1) + matrix.diagonal().exp().diag_embed())
        solved: Tensor = torch.linalg.solve_ex(matrix, vectors.mT).result
        return solved.mT


class DiagonalPlusFactor(LearnedMean):
    """Learned precisions D + VᵀV with a positive diagonal D and an r × d factor V, r the rank."""

    _shown = ("rank",)

    def __init__(
        self,
        *sizes: int,
        rank: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, device=device, dtype=dtype, **options)
        self.rank = min(check_count("rank", rank), self.in_features)
        if self.has_covariance:
            *classes, width = self.location.shape
            diagonal = torch.empty(*classes, width, device=device, dtype=dtype)
            self.log_diagonal = nn.Parameter(diagonal)
            self.factor = nn.Parameter(diagonal.new_empty(*classes, self.rank, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero means, near-identity precisions: at V = 0 the factors would get no gradient."""
        with torch.no_grad():
            self.location.zero_()
            if self.has_covariance:
                self.log_diagonal.zero_()
                self.factor.normal_(std=0.1 / self.in_features**0.5)


class LearnedLowRank(DiagonalPlusFactor):
    """A learned background for wide features: Σ⁻¹ = D + VᵀV, a diagonal and a low rank.

    Whitening stacks both parts, [D^½(x - μ), V(x - μ)], which has the inner products of Σ⁻¹ and
    d + r entries.

    Args:
        in_features: width of the features.
        rank: r, the rows of V.
        **options: ``mean``, ``covariance``, ``device`` and ``dtype``, as for :class:`Learned`.

    Example:
        >>> LearnedLowRank(8, rank=2).whiten(torch.ones(1, 8)).shape
        torch.Size([1, 10])
    """

    def __init__(self, in_features: int, *, rank: int = 64, **options: Any) -> None:
        super().__init__(in_features, rank=rank, **options)
        if self.has_covariance:
            self.out_features = in_features + self.rank

    def transform(self, vectors: Tensor) -> Tensor:
        """[D^½v, Vv] for every row."""
        if not self.has_covariance:
            return vectors
        diagonal = (0.5 * widened(self.log_diagonal, vectors.dtype)).exp()
        factor = widened(self.factor, vectors.dtype)
        return torch.cat([vectors * diagonal, vectors @ factor.mT], dim=-1)
