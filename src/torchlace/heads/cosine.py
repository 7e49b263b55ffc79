"""Heads that score by a cosine: NormFace, the angular margins, AdaCos."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchlace._checks import check_number
from torchlace._options import check_options
from torchlace._precision import full_precision
from torchlace.functional import (
    additive_angular_margin,
    additive_cosine_margin,
    auto_scale,
    chunked_cross_entropy,
    cross_entropy,
    loss_floor,
    multiplicative_angular_margin,
    split_logits,
    unit,
)
from torchlace.heads.base import Head, LossOptions, join, unlabelled, warn
from torchlace.heads.fold import Folded, Normalize, linear

Scale = float | Literal["auto", "learned"]


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

    def __init__(
        self, in_features: int, num_classes: int, *, scale: Scale = "auto", **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.log_scale: nn.Parameter | None = None
        start = auto_scale(num_classes)
        if isinstance(scale, str):
            if scale not in ("auto", "learned"):
                raise ValueError(
                    f"scale must be a positive number, 'auto' or 'learned', got {scale!r}"
                )
            if scale == "learned":
                # One entry, since a scalar can't be spread over devices.
                self.log_scale = nn.Parameter(self.weight.new_full((1,), math.log(start)))
        else:
            start = check_number("scale", scale, 0)
        self._fixed_scale = start

    @property
    def scale(self) -> float | Tensor:
        """What cosines are multiplied by; a tensor where it is learned."""
        if self.log_scale is None:
            return self._fixed_scale
        return self._lift(self.log_scale).exp().squeeze(0)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any
    ) -> None:
        # Weights of earlier versions hold the learned scale as a scalar.
        saved = state_dict.get(f"{prefix}log_scale")
        if isinstance(saved, Tensor) and saved.dim() == 0:
            state_dict[f"{prefix}log_scale"] = saved[None]
        super()._load_from_state_dict(state_dict, prefix, *args, **options)

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
            f"{super()._account()}; at scale {scale:.3g} training reaches at most probability "
            f"{most:.3f} and a loss of at least {floor:.3g}"
        )
        if most < 0.5:
            warn(
                f"scale {scale:.3g} can't separate {self.num_classes} classes: their probabilities "
                f"reach {most:.3f} at most and the loss stays above {floor:.3g}; "
                f"scale='auto' is {auto_scale(self.num_classes):.3g}"
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

    def _vectors(self, features: Tensor, targets: Tensor | None) -> tuple[Tensor, Tensor]:
        """Features and class vectors whose cosines are the scores."""
        return features, self.weight.to(features.dtype)

    def _logits(self, features: Tensor) -> Tensor:
        return self._dense(features, None)

    def _dense(self, features: Tensor, targets: Tensor | None) -> Tensor:
        features, classes = self._vectors(features, targets)
        return (unit(features) * self.scale) @ unit(classes).mT

    def _losses(self, features: Tensor, targets: Tensor, options: LossOptions) -> Tensor:
        margin = self._scaled_margin if self._has_margin else None
        chunk = self._chunk_for(features.shape[0])
        labels = unlabelled(targets, options.ignore_index)
        if chunk is None:
            logits = self._dense(features, labels)
            return cross_entropy(logits, targets, margin=margin, **options._asdict())
        features, classes = self._vectors(features, labels)
        return chunked_cross_entropy(
            unit(features) * self.scale,
            classes,
            targets,
            normalize=True,
            margin=margin,
            chunk=chunk,
            **options._asdict(),
        )

    def _readable_scale(self) -> float:
        scale = self.scale
        return self._fixed_scale if isinstance(scale, Tensor) and scale.is_meta else float(scale)

    def _scaled_margin(self, logit: Tensor) -> Tensor:
        return self._margin(logit / self.scale) * self.scale

    def extra_repr(self) -> str:
        """With the scale."""
        scale = "learned" if self.log_scale is not None else f"{self._readable_scale():.4g}"
        return f"{super().extra_repr()}, {join({'scale': scale})}"


class NormFace(CosineHead):
    """Softmax over scaled cosines, without margin (Wang et al., 2017).

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        scale: a number, ``"auto"`` (from the number of classes) or ``"learned"`` (from there).
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> NormFace(512, 100)
        NormFace(512, 100, scale=6.498)
    """


class _MarginHead(CosineHead):
    """A cosine head with one margin."""

    _margins = (0.0, 2.0)

    def __init__(
        self, in_features: int, num_classes: int, *, margin: float, scale: Scale, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, scale=scale, **options)
        self.margin = check_number("margin", margin, *self._margins, closed=True)

    def extra_repr(self) -> str:
        """With the margin."""
        return f"{super().extra_repr()}, margin={self.margin}"


class ArcFace(_MarginHead):
    """Additive angular margin (Deng et al., 2019).

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: angle in radians, in [0, π/2].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> ArcFace(512, 10)
        ArcFace(512, 10, scale=30, margin=0.05)
    """

    _margins = (0.0, math.pi / 2)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 0.05,
        scale: Scale = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return additive_angular_margin(cosine, self.margin)


class CosFace(_MarginHead):
    """Additive cosine margin (Wang et al., 2018).

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: in [0, 2].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> CosFace(512, 10)
        CosFace(512, 10, scale=30, margin=0.4)
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 0.4,
        scale: Scale = 30.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return additive_cosine_margin(cosine, self.margin)


class SphereFace(_MarginHead):
    """Multiplicative angular margin (Liu et al., 2017), monotone and with normalised features.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: factor of the angle, in [1, 10].
        scale: a number, ``"auto"`` or ``"learned"``.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> SphereFace(512, 10)
        SphereFace(512, 10, scale=64, margin=1.35)
    """

    _margins = (1.0, 10.0)

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        margin: float = 1.35,
        scale: Scale = 64.0,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, margin=margin, scale=scale, **options)

    def _margin(self, cosine: Tensor) -> Tensor:
        return multiplicative_angular_margin(cosine, self.margin)


class AdaCos(CosineHead):
    """Scaled cosines whose scale follows the training (Zhang et al., 2019, dynamic version).

    The scale is set anew in every training step, from the median angle to the true class and the
    weight of the wrong ones, over the batches of all processes (which must be of equal size).

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        sync: use the samples of all processes of the default group, where there is one.
        **options: ``chunk``, ``device``, ``dtype`` as for every head.

    Example:
        >>> AdaCos(512, 100)
        AdaCos(512, 100, scale=6.498)
    """

    _settled = ("scale",)
    current_scale: Tensor

    def __init__(
        self, in_features: int, num_classes: int, *, sync: bool = True, **options: Any
    ) -> None:
        check_options(type(self), options)
        super().__init__(in_features, num_classes, scale="auto", **options)
        self.sync = sync
        start = torch.full_like(self.temperature, self._fixed_scale)
        self.register_buffer("current_scale", start)

    @property
    def scale(self) -> Tensor:
        """The scale of the last training step; a copy, since the next one changes it in place."""
        return self.current_scale.clone()

    def _losses(self, features: Tensor, targets: Tensor, options: LossOptions) -> Tensor:
        if self.training and self.num_classes > 1 and (features.shape[0] or self._several()):
            with torch.no_grad():
                self._adapt(features.detach(), targets, options.ignore_index)
        return super()._losses(features, targets, options)

    def _several(self) -> bool:
        there = self.sync and dist.is_available() and dist.is_initialized()
        return there and dist.get_world_size() > 1

    def _adapt(self, features: Tensor, targets: Tensor, ignore_index: int) -> None:
        known = torch.where(targets == ignore_index, 0, targets)
        scaled, classes = unit(features) * self.scale, self.weight.to(features.dtype)
        chunk = self._chunk_for(features.shape[0]) or self.num_classes
        others, logit, _ = split_logits(scaled, classes, known, normalize=True, chunk=chunk)
        truth = logit / self.scale
        counted = targets != ignore_index
        if self._several():
            truth, others, counted = map(_gather, (truth, others, counted))
        count = counted.sum()
        others = torch.where(counted, others, -torch.inf).logsumexp(0)
        others = others - count.to(others.dtype).log()
        ordered = torch.where(counted, truth, torch.inf).sort(descending=True).values
        # The cosines sorted downwards, ignored ones first: the median angle is that of the middle.
        middle = ordered.shape[0] - count + (count - 1) // 2
        median = ordered.gather(0, middle.clamp(0, ordered.shape[0] - 1)[None])[0]
        scale = others / median.clamp_min(math.cos(math.pi / 4))
        usable = torch.isfinite(scale) & (scale > 0)
        self.current_scale.copy_(torch.where(usable, scale, self.current_scale))


def _gather(tensor: Tensor) -> Tensor:
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)
