"""What every background offers: a mean, a precision, and the whitening they define."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchlace._checks import check_classes, check_count, check_feature_shape
from torchlace._precision import FullPrecisionBuffers, compute_dtype, full_precision, widened
from torchlace._values import check_options
from torchlace.functional import cosine_logits, loss_floor
from torchlace.functional.geometry import negligible
from torchlace.functional.targets import Targets


class Background(FullPrecisionBuffers):
    """What LACE compares against: a mean μ, a covariance Σ, and the whitening W(x - μ), WᵀW = Σ⁻¹.

    Calling a background whitens; in training mode one that is estimated also learns from what it
    is given. :meth:`whiten` only whitens.

    Args:
        in_features: width of the features.
        mean: subtract the mean.
        covariance: whiten.

    Attributes:
        in_features: width of the features.
        out_features: width after whitening.
        num_classes: number of classes, None where they are not told apart.
        needs_targets: whether learning needs the labels.
        per_class: whether each class is compared in a space of its own.

    Example:
        >>> from torchlace.backgrounds import Learned
        >>> background = Learned(3)
        >>> isinstance(background, Background), background.precision.diagonal().tolist()
        (True, [1.0, 1.0, 1.0])
    """

    needs_targets = False
    per_class = False
    num_classes: int | None = None
    _space = "features"  # of signatures, where nobody asks
    _shown: tuple[str, ...] = ()  # options in the printed form

    def __init__(
        self, in_features: int, *, mean: bool = True, covariance: bool = True, **unknown: Any
    ) -> None:
        check_options(type(self), unknown)
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.out_features = self.in_features
        self.has_mean = bool(mean)
        self.has_covariance = bool(covariance)

    def forward(self, features: Tensor, targets: Targets | None = None) -> Tensor:
        """Whiten (N, d) features, after learning from them in training mode."""
        check_feature_shape(features, self.in_features)
        with full_precision(features):
            features = widened(features, compute_dtype(features, self.mean))
            self.observe(features, targets)
            return self.whiten(features)

    def whiten(self, features: Tensor) -> Tensor:
        """W(x - μ) for every row, learning nothing."""
        return self.transform(self.centre(features))

    def centre(self, features: Tensor) -> Tensor:
        """X - μ for every row."""
        return features - widened(self.mean, features.dtype) if self.has_mean else features

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row: the linear part of the whitening."""
        raise NotImplementedError(f"{type(self).__name__} must define transform")

    def affine(self, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Matrix and bias of the linear layer that whitens, on the device and in the type given."""
        matrix = self.transform(torch.eye(self.in_features, dtype=like.dtype, device=like.device))
        matrix = matrix.mT
        return matrix, -matrix @ self.mean.to(matrix.dtype) if self.has_mean else None

    def compared(self, features: Tensor, signatures: Tensor, space: str) -> tuple[Tensor, Tensor]:
        """Samples and signatures where a head takes their cosines, (N, k) and (C, k).

        Args:
            features: (N, d).
            signatures: (C, d) in ``"features"``, (C, k) in the ``"whitened"`` space.
            space: which of the two.
        """
        if space == "whitened":
            return self.whiten(features), signatures
        # One call for both, so that a background that solves factorises its matrix once.
        whitened = self.transform(torch.cat([self.centre(features), signatures]))
        return whitened[: features.shape[0]], whitened[features.shape[0] :]

    def scores(
        self, features: Tensor, signatures: Tensor, scale: float | Tensor, space: str
    ) -> Tensor:
        """ACE of every sample against every signature, times ``scale``, (N, C).

        The arguments are those of :meth:`compared`.
        """
        vectors, classes = self.compared(features, signatures, space)
        return cosine_logits(vectors, classes, scale, self.least(vectors.dtype))

    def check_scale(self, features: Tensor) -> None:
        """Raise for features that whitening would make too large, where values are looked at."""

    def space(self, wanted: str | None) -> str:
        """Where signatures live, ``"whitened"`` or ``"features"``, if ``wanted`` leaves it open."""
        return wanted or self._space

    def loss_floor(self, num_classes: int, scale: float) -> float:
        """The smallest cross-entropy that balanced classes can reach at this scale."""
        return loss_floor(num_classes, scale)

    def least(self, dtype: torch.dtype) -> float:
        """The length up to which a whitened sample counts as zero, as the mean does."""
        return negligible(dtype)

    def observe(self, features: Tensor, targets: Targets | None = None) -> None:
        """Learn from a batch in training mode; what gradients teach needs nothing here.

        A sample with a negative label counts for nothing, and one with a soft target for each of
        its classes by their shares.
        """

    def reset_parameters(self) -> None:
        """Start again, as fresh as constructed: parameters, statistics and the clock."""
        raise NotImplementedError(f"{type(self).__name__} must define reset_parameters")

    @property
    def anchors(self) -> Tensor | None:
        """Where the classes lie in the whitened space, (C, d); None where that is not known.

        In units of their root mean square, zero for a class that was never seen.
        """
        return None

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        raise NotImplementedError(f"{type(self).__name__} must define mean")

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ as it is in use, (d, d)."""
        mean = self.mean
        identity = torch.eye(self.in_features, dtype=compute_dtype(mean), device=mean.device)
        factor = self.transform(identity)
        return factor @ factor.mT

    @property
    def covariance(self) -> Tensor:
        """Σ, the inverse of :attr:`precision`, (d, d)."""
        inverse: Tensor = torch.linalg.inv(self.precision)
        return inverse

    def extra_repr(self) -> str:
        """The width, the number of classes, what is off, and the options that matter."""
        sizes = [str(size) for size in (self.in_features, self.num_classes) if size is not None]
        off = [f"{n}=False" for n in ("mean", "covariance") if not getattr(self, f"has_{n}")]
        return ", ".join([*sizes, *off, *(f"{n}={getattr(self, n)!r}" for n in self._shown)])


class KnowsClasses(Background):
    """A background made for a number of classes."""

    num_classes: int

    def __init__(self, in_features: int, num_classes: int, **options: Any) -> None:
        super().__init__(in_features, **options)
        self.num_classes = check_classes(num_classes)


class ClasswiseBackground(KnowsClasses):
    """A background of each class's own: no whitening is common, so it compares by itself.

    Attributes:
        shared_whitening: whether signatures may live in a whitened space common to all classes.

    Example:
        >>> from torchlace.backgrounds import OneVsAll
        >>> background = OneVsAll(4, 3)
        >>> isinstance(background, ClasswiseBackground), background.precision.shape
        (True, torch.Size([3, 4, 4]))
    """

    per_class = True
    shared_whitening = False

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C)."""
        raise NotImplementedError(f"{type(self).__name__} must define cosines")

    def scores(
        self, features: Tensor, signatures: Tensor, scale: float | Tensor, space: str
    ) -> Tensor:
        """:meth:`cosines` times ``scale``, (N, C)."""
        if space == "features":
            signatures = self.transform(signatures)
        return self.cosines(features, signatures) * scale

    def affine(self, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """No linear layer whitens for all classes."""
        raise ValueError(
            f"{type(self).__name__} compares each class in its own space, which has no form in "
            "plain layers; export the head itself instead"
        )

    def space(self, wanted: str | None) -> str:
        """Feature space where no whitening is common to all classes."""
        if self.shared_whitening:
            return super().space(wanted)
        if wanted == "whitened":
            raise ValueError(
                f"{type(self).__name__} has no whitened space common to all classes: use "
                'signature_space="features"'
            )
        return "features"

    def loss_floor(self, num_classes: int, scale: float) -> float:
        """With a mean for each class, no simplex binds: all wrong cosines can be -1."""
        return math.log1p((num_classes - 1) * math.exp(-2 * scale))

    def whiten(self, features: Tensor) -> Tensor:
        """W(x - μ) by what is common to all classes, where there is such a thing."""
        if not self.shared_whitening:
            raise ValueError(
                f"{type(self).__name__} whitens differently for every class; use "
                "cosines(features, signatures), or read precision"
            )
        return super().whiten(features)

    def transform(self, vectors: Tensor) -> Tensor:
        """The linear map common to all classes: none."""
        return vectors
