"""One background for each class, learned by gradient descent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlace._checks import check_count
from torchlace._precision import compute_dtype, widened
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.expansion import ratio, scaled
from torchlace.functional import unit


class LearnedOneVsAll(ClasswiseBackground):
    """One-vs-all backgrounds learned by gradient descent: Σ_c⁻¹ = D_c + V_cᵀV_c.

    Args:
        in_features: width d of the features.
        num_classes: number of classes C; C × (r + 2) × d numbers are learned.
        rank: r, the rows of V_c.
        mean: subtract a mean.
        covariance: whiten.
        device: as in torch layers.
        dtype: as in torch layers.

    Example:
        >>> LearnedOneVsAll(512, 100).cosines(torch.randn(8, 512), torch.randn(100, 512)).shape
        torch.Size([8, 100])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        rank: int = 8,
        mean: bool = True,
        covariance: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, num_classes, mean=mean, covariance=covariance)
        self.rank = min(check_count("rank", rank), in_features)
        centers = torch.zeros(num_classes, in_features, device=device, dtype=dtype)
        self._place_mean(centers)
        if covariance:
            self.log_diagonal = nn.Parameter(torch.empty_like(centers))
            self.factor = nn.Parameter(centers.new_empty(num_classes, self.rank, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero means, near-identity precisions: at V = 0 the factors would get no gradient."""
        with torch.no_grad():
            self.location.zero_()
            if self.has_covariance:
                self.log_diagonal.zero_()
                self.factor.normal_(std=0.1 / self.in_features**0.5)

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C)."""
        dtype = features.dtype
        means, signatures = widened(self.mean, dtype), unit(signatures)
        # Expanded squares lose digits when means are large, so the common part goes first.
        origin = means.detach().mean(0)
        features, means = features - origin, means - origin
        features, inverse = scaled(features, means)
        diagonal = torch.ones_like(signatures)
        if self.has_covariance:
            diagonal = widened(self.log_diagonal, dtype).exp()
        weighted, projected = diagonal * means, diagonal * signatures
        # A length, squared after scaling: the square of a scale of 1e20 would overflow.
        away = torch.linalg.vector_norm(diagonal.sqrt() * means, dim=-1)
        squares = features.square() @ diagonal.mT - 2 * inverse * (features @ weighted.mT)
        squares = squares + (inverse * away).square()
        products = features @ projected.mT - inverse * (projected * means).sum(-1)
        lengths = (projected * signatures).sum(-1)
        if self.has_covariance:
            factor = widened(self.factor, dtype)
            mapped = torch.einsum("nd,crd->ncr", features, factor)
            mapped = mapped - inverse[..., None] * torch.einsum("cd,crd->cr", means, factor)
            sketched = torch.einsum("cd,crd->cr", signatures, factor)
            squares = squares + mapped.square().sum(-1)
            products = products + (mapped * sketched).sum(-1)
            lengths = lengths + sketched.square().sum(-1)
        return ratio(products, squares, lengths)

    @property
    def mean(self) -> Tensor:
        """μ of every class, (C, d); zero where it is switched off."""
        return self.location

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ of every class, (C, d, d)."""
        dtype = compute_dtype(self.mean)
        if not self.has_covariance:
            return torch.ones_like(self.mean, dtype=dtype).diag_embed()
        factor = self.factor.to(dtype)
        return self.log_diagonal.to(dtype).exp().diag_embed() + factor.mT @ factor

    def extra_repr(self) -> str:
        """Width, classes, rank."""
        return f"{super().extra_repr()}, rank={self.rank}"
