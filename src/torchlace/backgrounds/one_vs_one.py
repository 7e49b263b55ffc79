"""One background for each opponent, for few classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlace._precision import compute_dtype, widened
from torchlace.backgrounds.base import ClasswiseBackground
from torchlace.backgrounds.total import (
    Method,
    MomentsBackground,
    Shrinkage,
    Whitener,
    one_hot,
)
from torchlace.functional import unit
from torchlace.functional.moments import Decay


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


class LearnedOneVsOne(_Opponents):
    """One-vs-one backgrounds learned by gradient descent, from the identity.

    Args:
        in_features: width of the features.
        num_classes: number of classes C; C × d × d numbers are learned.
        mean: subtract a mean.
        covariance: whiten.
        device: as in torch layers.
        dtype: as in torch layers.

    Example:
        >>> LearnedOneVsOne(4, 3).cosines(torch.eye(4)[:1], torch.eye(4)[:3]).detach()
        tensor([[1., 0., 0.]])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        mean: bool = True,
        covariance: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, num_classes, mean=mean, covariance=covariance)
        centers = torch.zeros(num_classes, in_features, device=device, dtype=dtype)
        self._place_mean(centers)
        if covariance:
            self.factor = nn.Parameter(centers.new_empty(num_classes, in_features, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zero means, identity whitenings."""
        with torch.no_grad():
            self.location.zero_()
            if self.has_covariance:
                self.factor.copy_(torch.eye(self.in_features))

    @property
    def mean(self) -> Tensor:
        """μ of every class as opponent, (C, d); zero where it is switched off."""
        return self.location

    def _whitenings(self) -> Tensor:
        return self.factor


class OneVsOne(MomentsBackground, _Opponents):
    """One-vs-one backgrounds estimated from the features of each class.

    Args:
        in_features: width of the features.
        num_classes: number of classes C; 2 × C × d × d numbers are kept.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature and class.
        refresh_every: training steps between two whitenings.
        method: ``"cholesky"`` or ``"newton-schulz"``.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> OneVsOne(4, 3).eval().cosines(torch.eye(4)[:1], torch.eye(4)[:3])
        tensor([[1., 0., 0.]])
    """

    needs_targets = True

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        shrinkage: Shrinkage = 0.1,
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
        self.whitener = Whitener(shrinkage, method)
        self._register(num_classes, device, dtype)
        self.register_buffer("whitening", torch.empty_like(self.running_covariance))
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitenings."""
        with torch.no_grad():
            self._forget()
            identity = torch.eye(self.in_features, dtype=self.whitening.dtype)
            self.whitening.copy_(identity.expand_as(self.whitening))
            self._clock.zero_()

    @property
    def mean(self) -> Tensor:
        """μ of every class as opponent, (C, d); zero where it is switched off."""
        mean = self.running_mean
        return mean if self.has_mean else torch.zeros_like(mean)

    def _whitenings(self) -> Tensor:
        return self._in_use("whitening", self.whitening.dtype)

    def _gain(self) -> Tensor:
        return self.whitening.abs().max() if self.has_covariance else super()._gain()

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        assert targets is not None
        self._learn(features, one_hot(targets, self.num_classes, features.dtype))

    def _derive(self) -> tuple[Tensor, ...]:
        return (self.whitener.whitening(self.moments),)

    def extra_repr(self) -> str:
        """Width, classes, shrinkage, method."""
        return f"{super().extra_repr()}, {self.whitener}"
