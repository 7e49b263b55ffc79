"""One background for each class: the mean and covariance of all others, estimated or learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchlace._precision import compute_dtype, widened
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.estimated import Within
from torchlace.backgrounds.learned import DiagonalPlusFactor
from torchlace.functional import cholesky, unit
from torchlace.functional.geometry import negligible


class OneVsAll(Within, ClasswiseBackground):
    """A background for each class, estimated from the samples of all other classes.

    The background of class c has the mean of all other classes, and the covariance

        Σ_c = Σ_within + Σ_{k≠c} p_k (μ_k - μ_c̄)(μ_k - μ_c̄)ᵀ,

    the covariance within classes, with :class:`Within`'s ridge, plus the scatter of the other
    classes' means: a common matrix and an own part of rank C - 1. In the space where the common
    matrix is the identity the own parts need only products with the class means, so that
    2 d² + C³ numbers serve all classes (7 MB for 100 classes of 512 features).

    Args:
        in_features: width d of the features.
        num_classes: number of classes C.
        ridge: of the covariance within classes, in units of the signal between them.
        method: ``"cholesky"`` or ``"newton-schulz"``.
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> background = OneVsAll(512, 100)
        >>> background.observe(torch.randn(256, 512), torch.randint(100, (256,)))
        >>> background.mean.shape  # the mean of the other classes, for each class
        torch.Size([100, 512])
    """

    shared_whitening = True
    _derived = ("means", "origin", "whitening", "centers", "pull", "factor", "class_anchors")
    _derived_of_means = ("means", "origin", "centers", "pull", "class_anchors")
    means: Tensor
    origin: Tensor
    centers: Tensor
    pull: Tensor
    factor: Tensor

    def __init__(self, in_features: int, num_classes: int, **options: Any) -> None:
        super().__init__(in_features, num_classes, **options)
        classes = (num_classes, in_features)
        self._hold(means=classes, origin=classes[1:], centers=classes, pull=classes[:1])
        self._hold(factor=(num_classes,) * 3)
        self.reset_parameters()

    @property
    def mean(self) -> Tensor:
        """The mean of the other classes, for each class, (C, d); zero where it is switched off."""
        return self.means if self.has_mean else torch.zeros_like(self.means)

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ of every class as it is in use, (C, d, d)."""
        identity = torch.eye(
            self.in_features, dtype=self.whitening.dtype, device=self.whitening.device
        )
        if not self.has_covariance:
            return identity.expand(self.num_classes, -1, -1)
        rows = self.centers - self.pull[:, None, None] * self.centers[:, None]
        rows = self.factor @ rows
        return self.whitening.mT @ (identity - rows.mT @ rows) @ self.whitening

    def centre(self, features: Tensor) -> Tensor:
        """X minus the mean of all classes."""
        return features - self.origin.to(features.dtype) if self.has_mean else features

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C).

        Signatures are given in the commonly whitened space.
        """
        dtype = features.dtype
        centers, factor, pull = (self._in_use(n, dtype) for n in ("centers", "factor", "pull"))
        shift = pull if self.has_mean else torch.zeros_like(pull)
        whitened, signatures = self.whiten(features), unit(signatures)
        if not self.has_covariance:
            # Nothing whitens here, so lengths are those of the features, at any magnitude.
            size = self._size(centers)
            whitened, centers = whitened / size, centers / size
        whitened, inverse = _scaled(whitened, shift[:, None] * centers, self.least(dtype))

        gram = centers @ centers.mT
        squares = gram.diagonal()
        near, own = whitened @ centers.mT, signatures @ centers.mT
        moved = near - inverse * shift * squares
        distances = whitened.square().sum(-1, keepdim=True)
        distances = distances - inverse * shift * (near + moved)
        products = whitened @ signatures.mT - inverse * shift * own.diagonal()
        lengths = signatures.square().sum(-1)
        if self.has_covariance:
            # Row k of the class's own part is √p_k (μ_k - pull·μ_c), whitened; here its products.
            rows = near[:, None] - (inverse * shift)[..., None] * gram - (pull * moved)[..., None]
            rows = torch.einsum("nck,cik->nci", rows, factor)
            traces = torch.einsum("ck,cik->ci", own - (pull * own.diagonal())[:, None], factor)
            distances = distances - rows.square().sum(-1)
            products = products - (rows * traces).sum(-1)
            lengths = lengths - traces.square().sum(-1)
        return _ratio(products, distances, lengths)

    def _gain(self) -> Tensor:
        return super()._gain() if self.has_covariance else 1 / self._size(self.centers)

    def _size(self, centers: Tensor) -> Tensor:
        return _nonzero(centers.abs().flatten().amax(0))

    def _derive(self) -> tuple[Tensor, ...]:
        mass, _, centers, _, length = self.moments
        share = mass / _nonzero(mass.sum())
        origin = share @ centers
        offsets = self._distinct(centers - origin)
        pull = torch.where(share < 1, -share / torch.where(share < 1, 1 - share, 1), 0)
        means = origin + pull[:, None] * offsets
        if not self.has_covariance:
            return means, origin, offsets, pull, self._anchored(offsets)
        whitening = self._factorised()
        centers = (offsets / length) @ whitening.mT

        gram = centers @ centers.mT
        column = pull[:, None] * gram
        inner = gram - column[:, :, None] - column[:, None, :]
        inner = inner + (pull.square() * gram.diagonal())[:, None, None]
        identity = torch.eye(len(share), dtype=share.dtype, device=share.device)
        rest = torch.where(share < 1, 1 - share, 1)[:, None]
        roots = (share / rest * (1 - identity)).sqrt()
        lower = cholesky(identity + roots[:, :, None] * inner * roots[:, None])
        factor = torch.linalg.solve_triangular(lower, roots.diag_embed(), upper=False)
        anchors = self._anchored(centers)
        return means, origin, whitening / length, centers, pull, factor, anchors


class LearnedOneVsAll(DiagonalPlusFactor, ClasswiseBackground):
    """A learned background for each class: Σ_c⁻¹ = D_c + V_cᵀV_c.

    Args:
        in_features: width d of the features.
        num_classes: number of classes C; C × (r + 2) × d numbers are learned.
        rank: r, the rows of V_c.
        **options: ``mean``, ``covariance``, ``device`` and ``dtype``, as for :class:`Learned`.

    Example:
        >>> LearnedOneVsAll(512, 100).cosines(torch.randn(8, 512), torch.randn(100, 512)).shape
        torch.Size([8, 100])
    """

    def __init__(
        self, in_features: int, num_classes: int, *, rank: int = 8, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, rank=rank, **options)

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C)."""
        dtype = features.dtype
        means, signatures = widened(self.mean, dtype), unit(signatures)
        # Expanded squares lose digits when means are large, so the common part goes first.
        origin = means.detach().mean(0)
        features, means = features - origin, means - origin
        features, inverse = _scaled(features, means)
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
        return _ratio(products, squares, lengths)

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ of every class, (C, d, d)."""
        dtype = compute_dtype(self.mean)
        if not self.has_covariance:
            return torch.ones_like(self.mean, dtype=dtype).diag_embed()
        factor = self.factor.to(dtype)
        return self.log_diagonal.to(dtype).exp().diag_embed() + factor.mT @ factor


def _scaled(features: Tensor, means: Tensor, least: float | None = None) -> tuple[Tensor, Tensor]:
    """Rows divided by the largest entry of features and means, and one over that, (N, 1).

    So that ‖x - μ‖² = ‖x‖² - 2μᵀx + ‖μ‖² can be expanded at any magnitude. ``least`` as in
    :func:`_nonzero`.
    """
    if features.shape[0] == 0:
        return features, features.new_ones(0, 1)
    size = features.detach().abs().amax(1, keepdim=True)
    size = _nonzero(torch.maximum(size, means.detach().abs().flatten().amax(0)), least)
    return features / size, 1 / size


def _nonzero(values: Tensor, least: float | None = None) -> Tensor:
    """The values as one may divide by them: 1 for 0, and up to ``least``, what counts as 0."""
    least = negligible(values.dtype) if least is None else least
    return torch.where(values > least, values, 1)


def _ratio(products: Tensor, squares: Tensor, lengths: Tensor) -> Tensor:
    """Products / √(squares·lengths), 0 where a length is."""
    tiny = torch.finfo(products.dtype).eps ** 2
    valid = (squares > tiny) & (lengths > tiny)
    norms = torch.where(valid, squares, 1).sqrt() * torch.where(valid, lengths, 1).sqrt()
    return torch.where(valid, products, 0) / norms
