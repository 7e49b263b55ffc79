"""Heads that score by a cosine, and the plain one: NormFace."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._checks import check_number
from torchlace._precision import full_precision, widened
from torchlace.functional import (
    adacos_scale,
    auto_scale,
    chunked_cross_entropy,
    cosine_logits,
    cross_entropy,
    loss_floor,
    scale_for,
    unit,
)
from torchlace.functional.geometry import negligible
from torchlace.functional.targets import Targets, unlabelled
from torchlace.heads.base import Head, LossOptions
from torchlace.heads.fold import Folded, Normalize, linear

Scale = float | str


class CosineHead(Head):
    """Logits are ``scale`` times the cosine between a feature and each class vector.

    Subclasses choose a margin (:meth:`_margin`) or what is compared (:meth:`_vectors`).

    Example:
        >>> class Steep(CosineHead):
        ...     def _margin(self, cosine):
        ...         return cosine - 0.2
        >>> Steep(8, 3, scale=10.0)
        Steep(8, 3, scale=10)
    """

    _reach = 0.9  # only their directions count

    def __init__(
        self, in_features: int, num_classes: int, *, scale: Scale = "auto", **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.log_scale: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        self._fixed_scale = _scale(scale, num_classes)
        if scale == "learned":
            # One entry, since a scalar can't be spread over devices.
            start = math.log(self._fixed_scale)
            self.log_scale = nn.Parameter(self.weight.new_full((1,), start))

    def reset_parameters(self) -> None:
        """Start again, a learned scale at the automatic one."""
        super().reset_parameters()
        if self.log_scale is not None:
            nn.init.constant_(self.log_scale, math.log(self._fixed_scale))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def scale(self) -> float | Tensor:
        """What cosines are multiplied by; a tensor where it is learned."""
        if self.log_scale is None:
            return self._fixed_scale
        return self._lift(self.log_scale).exp().squeeze(0)

    def fold(self) -> Folded:
        """Normalize → Linear."""
        with full_precision(self.weight):
            scores = unit(self._lift(self.signatures)) * self.scale
        return Folded(self.temperature, normalize=Normalize(), scores=linear(scores))

    def _account(self) -> str:
        """What the scale allows; warns if it can't separate this many classes."""
        scale = self._readable_scale()
        floor = self._floor(scale)
        most = math.exp(-floor)
        text = (
            f"{super()._account()}; at scale {scale:.3g} all classes can reach probability "
            f"{most:.3f} together, a loss of {floor:.3g}"
        )
        if most < 0.5:
            warnings.warn(
                f"scale {scale:.3g} can't separate {self.num_classes} classes: together they reach "
                f"probability {most:.3f} at most and the loss stays above {floor:.3g}; "
                f"scale='auto' is {auto_scale(self.num_classes):.3g}",
                UserWarning,
                stacklevel=3,
            )
        return text

    def _floor(self, scale: float) -> float:
        """The smallest loss that balanced classes can reach at ``scale``."""
        return loss_floor(self.num_classes, scale)

    def _margin(self, cosine: Tensor) -> Tensor:
        """What takes the place of the true class's cosine; none by default."""
        return cosine

    @property
    def _has_margin(self) -> bool:
        return type(self)._margin is not CosineHead._margin

    def _vectors(self, features: Tensor, targets: Targets | None) -> tuple[Tensor, Tensor]:
        """Features and class vectors whose cosines are the scores."""
        return features, widened(self.weight, features.dtype)

    def _least(self, dtype: torch.dtype) -> float:
        """The length up to which features of :meth:`_vectors` count as zero."""
        return negligible(dtype)

    def _logits(self, features: Tensor) -> Tensor:
        return self._biased(self._dense(features, None))

    def _dense(self, features: Tensor, targets: Targets | None) -> Tensor:
        vectors, classes = self._vectors(features, targets)
        return cosine_logits(vectors, classes, self.scale, self._least(vectors.dtype))

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        margin = self._scaled_margin if self._has_margin else None
        chunk = self._chunk_for(targets)
        labels = unlabelled(targets, options.ignore_index)
        if chunk is None:
            logits = self._biased(self._dense(features, labels))
            return cross_entropy(logits, targets, margin=margin, **options.named())
        features, classes = self._vectors(features, labels)
        return chunked_cross_entropy(
            unit(features, self._least(features.dtype)) * self.scale,
            classes,
            targets,
            bias=None if self.bias is None else widened(self.bias, features.dtype),
            normalize=True,
            margin=margin,
            chunk=chunk,
            **options.named(),
        )

    def _biased(self, logits: Tensor) -> Tensor:
        return logits if self.bias is None else logits + widened(self.bias, logits.dtype)

    def _readable_scale(self) -> float:
        scale = self.scale
        return self._fixed_scale if isinstance(scale, Tensor) and scale.is_meta else float(scale)

    def _scaled_margin(self, logit: Tensor) -> Tensor:
        return self._margin(logit / self.scale) * self.scale

    def extra_repr(self) -> str:
        """With the scale."""
        scale = "learned" if self.log_scale is not None else f"{self._readable_scale():.4g}"
        return f"{super().extra_repr()}, scale={scale}"


def _scale(given: Scale, num_classes: int) -> float:
    """The scale, or where a learned one begins."""
    if not isinstance(given, str):
        return check_number("scale", given, 0)
    if given in ("auto", "learned"):
        return auto_scale(num_classes)
    if given == "adacos":
        return adacos_scale(num_classes)
    share = given.removesuffix("%")
    if share == given or not share.replace(".", "", 1).isdecimal():
        raise ValueError(
            "scale must be a positive number, 'auto', 'learned', 'adacos' or a share such as "
            f"'95%', the best probability that it lets all classes reach; got {given!r}"
        )
    return scale_for(num_classes, float(share) / 100)


class NormFace(CosineHead):
    """Softmax over scaled cosines, without margin (Wang et al., 2017).

    Paper: Wang et al., "NormFace: L2 Hypersphere Embedding for Face Verification", ACM
    Multimedia 2017.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        scale: a number; ``"auto"``, which lets all classes reach probability .99, or another share
            such as ``"95%"``; ``"learned"``, from there; ``"adacos"``, √2·ln(C - 1).
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> NormFace(512, 100)
        NormFace(512, 100, scale=9.098)
    """
