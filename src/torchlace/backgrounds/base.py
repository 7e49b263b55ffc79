"""What every background offers: a mean, a precision, and the whitening they define."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchlace._checks import check_classes, check_count, check_feature_shape
from torchlace._precision import FullPrecisionBuffers, compute_dtype, full_precision, widened
from torchlace.functional import loss_floor
from torchlace.functional.geometry import negligible


class Background(FullPrecisionBuffers):
    """Mean μ and covariance Σ of the background, and the whitening W(x - μ) with WᵀW = Σ⁻¹.

    Calling a background whitens; in training mode one that is estimated also learns from what it
    is given. :meth:`whiten` only whitens.

    Attributes:
        in_features: width of the features.
        out_features: width after whitening.
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
    _space = "features"  # of signatures, where nobody asks

    def __init__(self, in_features: int, *, mean: bool = True, covariance: bool = True) -> None:
        super().__init__()
        self.in_features = check_count("in_features", in_features)
        self.out_features = self.in_features
        self.has_mean = bool(mean)
        self.has_covariance = bool(covariance)

    def forward(self, features: Tensor, targets: Tensor | None = None) -> Tensor:
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

    def observe(self, features: Tensor, targets: Tensor | None = None) -> None:
        """Learn from a batch in training mode; what gradients teach needs nothing here.

        A sample with a negative label counts for nothing.
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

    def _place_mean(self, zeros: Tensor) -> None:
        """A mean that gradients teach, or zeros where it is switched off."""
        if self.has_mean:
            self.location = nn.Parameter(zeros)
        else:
            zeros = zeros.to(compute_dtype(zeros))
            self.register_buffer("location", zeros, persistent=False)

    def extra_repr(self) -> str:
        """The width, and which of mean and covariance is off."""
        off = [f"{n}=False" for n in ("mean", "covariance") if not getattr(self, f"has_{n}")]
        return ", ".join([str(self.in_features), *off])


class ClasswiseBackground(Background):
    """A background that differs between classes: it compares instead of whitening.

    Attributes:
        num_classes: number of classes.
        shared_whitening: whether signatures may live in a whitened space common to all classes.

    Example:
        >>> from torchlace.backgrounds import OneVsAll
        >>> background = OneVsAll(4, 3)
        >>> isinstance(background, ClasswiseBackground), background.precision.shape
        (True, torch.Size([3, 4, 4]))
    """

    per_class = True
    shared_whitening = False

    def __init__(
        self, in_features: int, num_classes: int, *, mean: bool = True, covariance: bool = True
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self.num_classes = check_classes(num_classes)

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """ACE of every sample against every class in that class's own background, (N, C)."""
        raise NotImplementedError(f"{type(self).__name__} must define cosines")

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

    def extra_repr(self) -> str:
        """Width, number of classes, and what is off."""
        width, *rest = super().extra_repr().split(", ")
        return ", ".join([width, str(self.num_classes), *rest])
