"""One background for each opponent, for few classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchlace._precision import compute_dtype, widened
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.estimated import Shrinkage, Shrunk
from torchlace.backgrounds.learned import LearnedMean
from torchlace.functional import empty_moments, unit
from torchlace.functional.targets import Targets, shares


class _Opponents(ClasswiseBackground):
    """Scores class c by its mean ACE over the backgrounds of all other classes.

    In the pair (c, k) class k is the background, so a background belongs to an opponent: C means
    and C whitenings serve all C·(C - 1) pairs.
    """

    def cosines(self, features: Tensor, signatures: Tensor) -> Tensor:
        """Mean over opponents of the ACE of every sample against every class, (N, C)."""
        centred = features - widened(self.mean, features.dtype)[:, None]
        directions = signatures.expand(self.num_classes, *signatures.shape)
        if self.has_covariance:
            whitening = widened(self._whitenings(), features.dtype).mT
            centred, directions = centred @ whitening, directions @ whitening
        scores = unit(centred, self.least(features.dtype)) @ unit(directions).mT
        own = torch.eye(self.num_classes, dtype=scores.dtype, device=scores.device)[:, None]
        return (scores * (1 - own)).sum(0) / (self.num_classes - 1)

    def _whitenings(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define _whitenings")

    @property
    def precision(self) -> Tensor:
        """Σ⁻¹ of every class as opponent, (C, d, d)."""
        if not self.has_covariance:
            return torch.ones_like(self.mean, dtype=compute_dtype(self.mean)).diag_embed()
        whitenings = self._whitenings()
        whitenings = whitenings.to(compute_dtype(whitenings))
        return whitenings.mT @ whitenings


class LearnedOneVsOne(LearnedMean, _Opponents):
    """A learned background for each class as the opponent of every other.

    Args:
        in_features: width of the features.
        num_classes: number of classes C; C × d × d numbers are learned.
        device: as in torch layers.
        dtype: as in torch layers.
        **options: ``mean`` and ``covariance``, as for :class:`Background`.

    Example:
        >>> LearnedOneVsOne(4, 3).cosines(torch.eye(4)[:1], torch.eye(4)[:3]).detach()
        tensor([[1., 0., 0.]])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, device=device, dtype=dtype, **options)
        if self.has_covariance:
            shape = (num_classes, in_features, in_features)
            self.factor = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero means, identity whitenings."""
        with torch.no_grad():
            self.location.zero_()
            if self.has_covariance:
                self.factor.copy_(torch.eye(self.in_features))

    def _whitenings(self) -> Tensor:
        return self.factor


class OneVsOne(_Opponents, Shrunk):
    """A background for each class as the opponent of every other, estimated from its samples.

    Args:
        in_features: width of the features.
        num_classes: number of classes C; 2 × C × d × d numbers are kept.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        method: ``"cholesky"`` or ``"newton-schulz"``.
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> OneVsOne(4, 3).eval().cosines(torch.eye(4)[:1], torch.eye(4)[:3])
        tensor([[1., 0., 0.]])
    """

    needs_targets = True

    def __init__(
        self, in_features: int, num_classes: int, *, shrinkage: Shrinkage = 0.1, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, shrinkage=shrinkage, **options)
        self._hold_moments(empty_moments, num_classes)
        self._hold(whitening=(num_classes, in_features, in_features))
        self.reset_parameters()

    @property
    def mean(self) -> Tensor:
        """μ of every class as opponent, (C, d); zero where it is switched off."""
        return self.running_mean if self.has_mean else torch.zeros_like(self.running_mean)

    def _whitenings(self) -> Tensor:
        return self._in_use("whitening", self.whitening.dtype)

    def _gain(self) -> Tensor:
        return self.whitening.abs().max() if self.has_covariance else super()._gain()

    def _update(self, features: Tensor, targets: Targets | None) -> None:
        assert targets is not None
        weights = shares(targets, self.num_classes, features.dtype)
        self._learn(features, weights.mT.contiguous())
