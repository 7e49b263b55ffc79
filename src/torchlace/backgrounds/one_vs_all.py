"""One background for each class: the mean and covariance of all other classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlace._checks import check_count
from torchlace._precision import compute_dtype
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.estimated import Method, Whitener, one_hot
from torchlace.backgrounds.running import Running
from torchlace.functional import cholesky, shrink, unit
from torchlace.functional.moments import largest, next_unit


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
        means, signatures = self.mean.to(dtype), unit(signatures)
        # Expanded squares lose digits when means are large, so the common part goes first.
        origin = means.detach().mean(0)
        features, means = features - origin, means - origin
        features, inverse = _scaled(features, means)
        diagonal = torch.ones_like(signatures)
        if self.has_covariance:
            diagonal = self.log_diagonal.to(dtype).exp()
        weighted, projected = diagonal * means, diagonal * signatures
        # A length, squared after scaling: the square of a scale of 1e20 would overflow.
        away = torch.linalg.vector_norm(diagonal.sqrt() * means, dim=-1)
        squares = features.square() @ diagonal.mT - 2 * inverse * (features @ weighted.mT)
        squares = squares + (inverse * away).square()
        products = features @ projected.mT - inverse * (projected * means).sum(-1)
        lengths = (projected * signatures).sum(-1)
        if self.has_covariance:
            factor = self.factor.to(dtype)
            mapped = torch.einsum("nd,crd->ncr", features, factor)
            mapped = mapped - inverse[..., None] * torch.einsum("cd,crd->cr", means, factor)
            sketched = torch.einsum("cd,crd->cr", signatures, factor)
            squares = squares + mapped.square().sum(-1)
            products = products + (mapped * sketched).sum(-1)
            lengths = lengths + sketched.square().sum(-1)
        return _ratio(products, squares, lengths)

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


class OneVsAll(Running, ClasswiseBackground):
    """One-vs-all backgrounds estimated from the features.

    The background of class c has the mean of all other classes, and the covariance

        Σ_c = Σ_within + Σ_{k≠c} p_k (μ_k - μ_c̄)(μ_k - μ_c̄)ᵀ,

    the covariance within classes, pooled and shrunk, plus the scatter of the other classes' means:
    a common matrix and an own part of rank C - 1. In the space where the common matrix is the
    identity the own parts need only products with the class means, so that 2 d² + C³ numbers
    serve all classes (7 MB for 100 classes of 512 features).

    Args:
        in_features: width d of the features.
        num_classes: number of classes C.
        shrinkage: of the covariance within classes, in [1e-4, 1].
        decay: what a batch still counts one step later.
        refresh_every: training steps between two whitenings.
        method: ``"cholesky"`` or ``"newton-schulz"``.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> background = OneVsAll(512, 100)
        >>> background.observe(torch.randn(256, 512), torch.randint(100, (256,)))
        >>> background.mean.shape  # the mean of the other classes, for each class
        torch.Size([100, 512])
    """

    needs_targets = True
    shared_whitening = True
    _derived = ("means", "origin", "whitening", "centers", "pull", "factor")
    running_mass: Tensor
    running_mean: Tensor
    running_covariance: Tensor
    running_unit: Tensor
    means: Tensor
    origin: Tensor
    whitening: Tensor
    centers: Tensor
    pull: Tensor
    factor: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        shrinkage: float = 0.1,
        decay: float = 0.99,
        refresh_every: int = 10,
        method: Method = "cholesky",
        mean: bool = True,
        covariance: bool = True,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, num_classes, mean=mean, covariance=covariance)
        self._configure(decay, refresh_every, sync)
        if isinstance(shrinkage, str):
            raise ValueError(
                "OneVsAll pools covariances over classes and takes a fixed shrinkage, a number in "
                f"[1e-4, 1]; got {shrinkage!r}"
            )
        self.whitener = Whitener(shrinkage, method)
        place = torch.empty(0, device=device, dtype=dtype)
        place = place.to(torch.promote_types(place.dtype, torch.float32))
        classes, square = (num_classes, in_features), (in_features, in_features)
        shapes: dict[str, tuple[int, ...]] = {
            "running_mass": (num_classes,),
            "running_mean": classes,
            "running_covariance": square,
            "running_unit": (),
            "means": classes,
            "origin": (in_features,),
            "whitening": square,
            "centers": classes,
            "pull": (num_classes,),
            "factor": (num_classes,) * 3,
        }
        for name, shape in shapes.items():
            self.register_buffer(name, place.new_zeros(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitening."""
        with torch.no_grad():
            for buffer in self.buffers():
                buffer.zero_()
            self.whitening.fill_diagonal_(1)
            self._clock.zero_()

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

    def transform(self, vectors: Tensor) -> Tensor:
        """Whiten by the covariance within classes."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

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
            size = _nonzero(centers.abs().flatten().amax(0))
            whitened, centers = whitened / size, centers / size
        whitened, inverse = _scaled(whitened, shift[:, None] * centers)

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

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        assert targets is not None
        reduction = self._reduction()
        members = one_hot(targets, self.num_classes, features.dtype)
        known, own = members.sum(0)[:, None], targets.clamp_min(0)
        shifted = (features - self.running_mean[own]) * known
        sums = torch.cat([members.sum(1, keepdim=True), members @ shifted], dim=1)
        sums = torch.cat([largest(shifted), sums.flatten()])
        sums = sums if reduction is None else reduction(sums)
        finite = torch.isfinite(sums.sum())
        sums, shifted = torch.where(finite, sums, 0), torch.where(finite, shifted, 0)
        count, total = sums[1:].view(self.num_classes, -1).split([1, self.in_features], dim=1)
        unit = next_unit(self.running_unit, sums[0], count.sum(), self.decay)
        length = torch.where(unit > 0, unit, 1)
        steps = total / torch.where(count > 0, count, 1)
        centred = (shifted - steps[own] * known) / length
        scatter = centred.mT @ centred
        scatter = scatter if reduction is None else reduction(scatter)

        before, count = self.decay * self.running_mass, count[:, 0]
        mass = before + count
        share = count / _nonzero(mass)
        drift = steps / length
        within = before.sum() * (self.running_unit / length) ** 2 * self.running_covariance
        within = within + scatter + ((before * share)[:, None] * drift).mT @ drift
        self.running_covariance.copy_(within / _nonzero(mass.sum()))
        self.running_mean.add_(share[:, None] * steps)
        self.running_mass.copy_(mass)
        self.running_unit.copy_(unit)

    def _derive(self) -> tuple[Tensor, ...]:
        share = self.running_mass / _nonzero(self.running_mass.sum())
        origin = share @ self.running_mean
        offsets = (self.running_mean - origin) * (share > 0)[:, None]
        pull = torch.where(share < 1, -share / torch.where(share < 1, 1 - share, 1), 0)
        means = origin + pull[:, None] * offsets
        if not self.has_covariance:
            return means, origin, self.whitening, offsets, pull, self.factor
        length = _nonzero(self.running_unit)
        shrunk = shrink(self.running_covariance, self.whitener.least())
        whitening = self.whitener.factor(shrunk)
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
        return means, origin, whitening / length, centers, pull, factor

    def extra_repr(self) -> str:
        """Width, classes, shrinkage, method."""
        return f"{super().extra_repr()}, {self.whitener}"


def _scaled(features: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Rows divided by the largest entry of features and means, and one over that, (N, 1)."""
    if features.shape[0] == 0:
        return features, features.new_ones(0, 1)
    size = features.detach().abs().amax(1, keepdim=True)
    size = _nonzero(torch.maximum(size, means.detach().abs().flatten().amax(0)))
    return features / size, 1 / size


def _nonzero(values: Tensor) -> Tensor:
    return torch.where(values > 0, values, 1)


def _ratio(products: Tensor, squares: Tensor, lengths: Tensor) -> Tensor:
    """Products / √(squares·lengths), 0 where a length is."""
    tiny = torch.finfo(products.dtype).eps ** 2
    valid = (squares > tiny) & (lengths > tiny)
    norms = torch.where(valid, squares, 1).sqrt() * torch.where(valid, lengths, 1).sqrt()
    return torch.where(valid, products, 0) / norms
