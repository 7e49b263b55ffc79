"""A background learned by gradient descent, as the paper's is."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice
from torchlace._precision import widened
from torchlace.backgrounds.base import Background

Form = Literal["factor", "cholesky", "matrix"]


class Learned(Background):
    """Mean and covariance as parameters.

    Args:
        in_features: width of the features.
        form: what the parameter is. ``"factor"``: W itself, from the identity. ``"cholesky"``: the
            Cholesky factor L of Σ⁻¹, its diagonal kept positive, from the identity. ``"matrix"``:
            the paper's M with Σ = MMᵀ, from a standard-normal start, and a random mean; whitening
            solves against M and decomposes nothing.
        mean: subtract a mean.
        covariance: whiten.
        device: as in torch layers.
        dtype: as in torch layers.

    Example:
        >>> background = Learned(3, form="cholesky")
        >>> background.whiten(torch.ones(1, 3))
        tensor([[1., 1., 1.]], grad_fn=<MmBackward0>)
    """

    def __init__(
        self,
        in_features: int,
        *,
        form: Form = "factor",
        mean: bool = True,
        covariance: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self.form = check_choice("form", form, ("factor", "cholesky", "matrix"))
        self._place_mean(torch.zeros(in_features, device=device, dtype=dtype))
        self.matrix: nn.Parameter | None = None
        if covariance:
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

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.location

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

    def extra_repr(self) -> str:
        """The width and the form."""
        return f"{super().extra_repr()}, form={self.form!r}"
