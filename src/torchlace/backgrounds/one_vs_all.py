"""One background for each class: the mean and covariance of all other classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlace._checks import check_count
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.estimated import Method, Whitener, one_hot, store
from torchlace.backgrounds.running import Running
from torchlace.functional import Moments, empty_moments, unit, update_moments


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
        centers = torch.empty(num_classes, in_features, device=device, dtype=dtype)
        if mean:
            self.mean = nn.Parameter(centers)
        else:
            self.register_buffer("mean", centers, persistent=False)
        if covariance:
            self.log_diagonal = nn.Parameter(torch.empty_like(centers))
            self.factor = nn.Parameter(centers.new_empty(num_classes, self.rank, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero means, near-identity precisions: at V = 0 the factors would get no gradient."""
        with torch.no_grad():
            self.mean.zero_()
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
        largest = torch.maximum(_largest(features, dim=1), _largest(means))
        features, inverse = features / largest, 1 / largest
        if self.has_covariance:
            diagonal = self.log_diagonal.to(dtype).exp()
            factor = self.factor.to(dtype)
            mapped = torch.einsum("nd,crd->ncr", features, factor)
            mapped = mapped - inverse[..., None] * torch.einsum("cd,crd->cr", means, factor)
            sketched = torch.einsum("cd,crd->cr", signatures, factor)
        else:
            diagonal = torch.ones_like(signatures)
            mapped, sketched = features.new_zeros(()), features.new_zeros(())
        weighted, projected = diagonal * means, diagonal * signatures
        squares = features.square() @ diagonal.mT - 2 * inverse * (features @ weighted.mT)
        squares = squares + inverse.square() * (weighted * means).sum(-1)
        products = features @ projected.mT - inverse * (projected * means).sum(-1)
        if self.has_covariance:
            squares = squares + mapped.square().sum(-1)
            products = products + (mapped * sketched).sum(-1)
            lengths = (projected * signatures).sum(-1) + sketched.square().sum(-1)
        else:
            lengths = (projected * signatures).sum(-1)
        return _ratio(products, squares, lengths)

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ of every class, (C, d, d)."""
        if not self.has_covariance:
            return torch.ones_like(self.mean).diag_embed()
        return self.log_diagonal.exp().diag_embed() + self.factor.mT @ self.factor

    def extra_repr(self) -> str:
        """Width, classes, rank."""
        return f"{super().extra_repr()}, rank={self.rank}"


class OneVsAll(Running, ClasswiseBackground):
    """One-vs-all backgrounds estimated from the features.

    The background of class c has the mean of all other classes, and the covariance

        Σ_c = Σ_within + Σ_{k≠c} p_k (μ_k - μ_c̄)(μ_k - μ_c̄)ᵀ,

    the covariance within classes, pooled and shrunk, plus the scatter of the other classes' means:
    a common matrix and an own part of rank C - 1. In the space where the common matrix is the
    identity the own parts need only products with the class means, so that d² + C³ numbers serve
    all classes (10 MB for 100 classes of 512 features).

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
    _derived = ("origin", "whitening", "centers", "pull", "factor")
    running_mean: Tensor
    running_unit: Tensor
    class_mass: Tensor
    class_mean: Tensor
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
        for name, value in (
            empty_moments(1, in_features, place.device, place.dtype)._asdict().items()
        ):
            self.register_buffer(f"running_{name}", value[0] if name == "mean" else value)
        shapes: dict[str, tuple[int, ...]] = {
            "class_mass": (num_classes,),
            "class_mean": (num_classes, in_features),
            "origin": (in_features,),
            "whitening": (in_features, in_features),
            "centers": (num_classes, in_features),
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
    def moments(self) -> Moments:
        """The running statistics of all samples, one group."""
        values = {name: self.get_buffer(f"running_{name}") for name in Moments._fields}
        return Moments(**{**values, "mean": values["mean"][None]})

    @property
    def mean(self) -> Tensor:  # type: ignore[override]
        """The mean of the other classes, for each class, (C, d); zero where it is switched off."""
        share = self.class_mass / self.class_mass.sum().clamp_min(1e-30)
        pull = _pull(share)[:, None] * float(self.has_mean)
        return self.running_mean * float(self.has_mean) + pull * (
            self.class_mean - self.running_mean
        )

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
        return features - self.origin if self.has_mean else features

    def transform(self, vectors: Tensor) -> Tensor:
        """Whiten by the covariance within classes."""
        return vectors @ self.whitening.to(vectors.dtype).mT if self.has_covariance else vectors

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C).

        Signatures are given in the commonly whitened space.
        """
        dtype = features.dtype
        centers, factor, pull = self.centers.to(dtype), self.factor.to(dtype), self.pull.to(dtype)
        shift = pull if self.has_mean else torch.zeros_like(pull)
        whitened, signatures = self.whiten(features), unit(signatures)
        largest = torch.maximum(_largest(whitened, dim=1), _largest(shift[:, None] * centers))
        whitened, inverse = whitened / largest, 1 / largest

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
        sums = torch.cat(
            [members.sum(1, keepdim=True), members @ (features - self.running_mean)], 1
        )
        sums = sums if reduction is None else reduction(sums)
        count = sums[:, 0]
        steps = sums[:, 1:] / torch.where(count > 0, count, 1)[:, None]
        mass = self.decay * self.class_mass + count
        share = (count / torch.where(mass > 0, mass, 1))[:, None]
        means = self.class_mean + share * (steps - (self.class_mean - self.running_mean))
        finite = torch.isfinite(sums.sum())
        for old, new in ((self.class_mass, mass), (self.class_mean, means)):
            old.copy_(torch.where(finite, new, old))
        known = members.sum(0, keepdim=True)
        moments = self.moments
        store(
            moments, update_moments(moments, features, known, self.decay, reduction, fourth=False)
        )

    def _derive(self) -> tuple[Tensor, ...]:
        moments = self.moments
        scale = torch.where(moments.unit > 0, moments.unit, 1)
        share = self.class_mass / self.class_mass.sum().clamp_min(1e-30)
        offsets = (self.class_mean - self.running_mean) * (self.class_mass > 0)[:, None]
        pull = _pull(share)
        if not self.has_covariance:
            return self.running_mean, self.whitening, offsets, pull, self.factor
        offsets = offsets / scale
        within = moments.covariance[0] - (offsets * share[:, None]).mT @ offsets
        whitening = self.whitener.factor(self.whitener.shrunk(moments._replace(covariance=within)))
        centers = offsets @ whitening.mT

        gram, one = centers @ centers.mT, torch.ones_like(share)
        column = pull[:, None] * gram
        inner = gram - column[:, :, None] - column[:, None, :]
        inner = inner + (pull.square() * gram.diagonal())[:, None, None]
        rest = torch.where(share < 1, 1 - share, one)[:, None]
        roots = ((share / rest).fill_diagonal_(0)).sqrt()
        identity = torch.eye(len(share), dtype=share.dtype, device=share.device)
        lower = torch.linalg.cholesky_ex(identity + roots[:, :, None] * inner * roots[:, None]).L
        factor = torch.linalg.solve_triangular(lower, roots.diag_embed(), upper=False)
        return self.running_mean, whitening / scale, centers, pull, factor

    def extra_repr(self) -> str:
        """Width, classes, shrinkage, method."""
        return f"{super().extra_repr()}, {self.whitener}"


def _pull(share: Tensor) -> Tensor:
    """The other classes' mean lies at pull·(μ_c - μ) from the overall mean μ."""
    return torch.where(share < 1, -share / torch.where(share < 1, 1 - share, 1), 0)


def _largest(vectors: Tensor, dim: int | None = None) -> Tensor:
    """The largest absolute entry, or 1 if all are zero; of each row for ``dim=1``."""
    if vectors.numel() == 0:
        return vectors.new_ones((len(vectors), 1) if dim == 1 else ())
    size = vectors.detach().abs()
    size = size.amax(1, keepdim=True) if dim == 1 else size.amax()
    return torch.where(size > 0, size, torch.finfo(size.dtype).tiny)


def _ratio(products: Tensor, squares: Tensor, lengths: Tensor) -> Tensor:
    """Products / √(squares·lengths), 0 where a length is."""
    tiny = torch.finfo(products.dtype).eps ** 2
    valid = (squares > tiny) & (lengths > tiny)
    norms = torch.where(valid, squares, 1).sqrt() * torch.where(valid, lengths, 1).sqrt()
    return torch.where(valid, products, 0) / norms
