"""One background for each class, estimated: the mean and covariance of all other classes."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace._checks import check_choice
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.expansion import nonzero, ratio, scaled
from torchlace.backgrounds.total import Method
from torchlace.backgrounds.within import ClassMomentsBackground, whitening_of
from torchlace.functional import cholesky, unit
from torchlace.functional.moments import Decay


class OneVsAll(ClassMomentsBackground, ClasswiseBackground):
    """One-vs-all backgrounds estimated from the features.

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
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature.
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

    shared_whitening = True
    _derived: tuple[str, ...] = (
        *("means", "origin", "whitening", "centers", "pull", "factor", "class_anchors"),
    )
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
        ridge: float = 0.1,
        decay: Decay = 0.99,
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
        self.method = check_choice("method", method, ("cholesky", "newton-schulz"))
        place = torch.empty(0, device=device, dtype=dtype)
        place = place.to(torch.promote_types(place.dtype, torch.float32))
        self._register_classes(num_classes, ridge, None, place)
        classes = (num_classes, in_features)
        shapes: dict[str, tuple[int, ...]] = {
            "means": classes,
            "origin": (in_features,),
            "whitening": (in_features, in_features),
            "centers": classes,
            "pull": (num_classes,),
            "factor": (num_classes,) * 3,
        }
        for name, shape in shapes.items():
            self.register_buffer(name, place.new_empty(shape))
        if not covariance:
            self._derived = ("means", "origin", "centers", "pull", "class_anchors")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitening."""
        with torch.no_grad():
            for buffer in self.buffers():
                buffer.zero_()
            self._forget()
            self.whitening.fill_diagonal_(1)

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
            size = self._size(centers)
            whitened, centers = whitened / size, centers / size
        whitened, inverse = scaled(whitened, shift[:, None] * centers, self.least(dtype))

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
        return ratio(products, distances, lengths)

    def _gain(self) -> Tensor:
        return super()._gain() if self.has_covariance else 1 / self._size(self.centers)

    def _size(self, centers: Tensor) -> Tensor:
        return nonzero(centers.abs().flatten().amax(0))

    def _derive(self) -> tuple[Tensor, ...]:
        mass, _, centers, _, length = self.moments
        share = mass / nonzero(mass.sum())
        origin = share @ centers
        offsets = self._distinct(centers - origin)
        pull = torch.where(share < 1, -share / torch.where(share < 1, 1 - share, 1), 0)
        means = origin + pull[:, None] * offsets
        if not self.has_covariance:
            return means, origin, offsets, pull, self._anchored(offsets)
        whitening = whitening_of(*self._ridged(), self.method)
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

    def extra_repr(self) -> str:
        """With the method."""
        return f"{super().extra_repr()}, method={self.method!r}"
