"""A cosine head whose scale follows the training."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchlace._values import check_options
from torchlace.functional import split_logits, unit
from torchlace.functional.targets import Targets, dominant
from torchlace.heads.base import LossOptions
from torchlace.heads.cosine import CosineHead


class AdaCos(CosineHead):
    """Scaled cosines whose scale follows the training (Zhang et al., 2019, dynamic version).

    The scale is set anew in every training step, from the median angle to the true class and the
    weight of the wrong ones, over the batches of all processes (which must be of equal size). Of a
    soft target, the class with the largest share is the true one here.

    Paper: Zhang et al., "AdaCos: Adaptively Scaling Cosine Logits for Effectively Learning Deep
    Face Representations", CVPR 2019.

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
        super().__init__(in_features, num_classes, scale="adacos", **options)
        self.sync = sync
        start = self.temperature.new_full((1,), self._fixed_scale)
        self.register_buffer("current_scale", start)

    def reset_parameters(self) -> None:
        """Start again, the scale at the automatic one."""
        super().reset_parameters()
        nn.init.constant_(self.current_scale, self._fixed_scale)

    @property
    def scale(self) -> Tensor:
        """The scale of the last training step; a copy, since the next one changes it in place."""
        return self.current_scale[0].clone()

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        if self.training and (features.shape[0] or self._several()):
            with torch.no_grad():
                self._adapt(features.detach(), dominant(targets), options.ignore_index)
        return super()._loss(features, targets, options)

    def _several(self) -> bool:
        there = self.sync and dist.is_available() and dist.is_initialized()
        return there and dist.get_world_size() > 1

    def _adapt(self, features: Tensor, targets: Tensor, ignore_index: int) -> None:
        known = torch.where(targets == ignore_index, 0, targets)
        scaled, classes = unit(features) * self.scale, self.weight.to(features.dtype)
        chunk = self._chunk_for(targets) or self.num_classes
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
