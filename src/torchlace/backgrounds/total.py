"""The background of all samples, whatever their class."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_number
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.running import Running
from torchlace.functional import (
    Moments,
    cholesky_whitening,
    empty_moments,
    ledoit_wolf,
    newton_schulz_whitening,
    shrink,
    update_moments,
)
from torchlace.functional.moments import Decay

Shrinkage = float | Literal["ledoit-wolf"]
Method = Literal["cholesky", "newton-schulz"]

# Ledoit and Wolf may find that no shrinkage is needed; a trace of it keeps fp32 factors finite.
_LEAST_SHRINKAGE = 1e-4

_STATISTICS = tuple(f"running_{name}" for name in Moments._fields)


class Whitener:
    """How a running covariance becomes a whitening: shrinkage, then Cholesky or Newton–Schulz."""

    def __init__(self, shrinkage: Shrinkage, method: Method) -> None:
        if isinstance(shrinkage, str):
            check_choice("shrinkage", shrinkage, ("ledoit-wolf",))
        else:
            shrinkage = check_number("shrinkage", shrinkage, _LEAST_SHRINKAGE, 1, closed=True)
        self.shrinkage = shrinkage
        self.method = check_choice("method", method, ("cholesky", "newton-schulz"))

    @property
    def adaptive(self) -> bool:
        """Whether the amount of shrinkage follows the samples."""
        return isinstance(self.shrinkage, str)

    def shrunk(self, moments: Moments) -> Tensor:
        """The covariance in units of ``moments.unit`` squared, shrunk, (G, d, d)."""
        covariance = moments.covariance
        if not self.adaptive:
            return shrink(covariance, self.least())
        amount = ledoit_wolf(covariance, moments.fourth, moments.spread)
        return shrink(covariance, amount.clamp_min(_LEAST_SHRINKAGE))

    def whitening(self, moments: Moments) -> Tensor:
        """W with WᵀW the inverse of the shrunk covariance, (G, d, d)."""
        return self.factor(self.shrunk(moments)) / moments.unit

    def factor(self, covariance: Tensor) -> Tensor:
        """W with W Σ Wᵀ = I for a covariance that is shrunk already."""
        if self.method == "cholesky":
            return cholesky_whitening(covariance)
        return newton_schulz_whitening(covariance, condition=covariance.shape[-1] / self.least())

    @constant_when_compiled
    def least(self) -> float:
        """The smallest shrinkage there can be; a constant to the compiler."""
        return self.shrinkage if isinstance(self.shrinkage, float) else _LEAST_SHRINKAGE

    def __repr__(self) -> str:
        return f"shrinkage={self.shrinkage}, method={self.method!r}"


class MomentsBackground(Running):
    """Running moments of one or more groups of samples, and a whitening of each."""

    _derived: tuple[str, ...] = ("whitening",)
    whitener: Whitener
    running_mean: Tensor
    running_covariance: Tensor
    whitening: Tensor

    def _register(
        self, groups: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        place = torch.empty(0, device=device, dtype=dtype)
        dtype = torch.promote_types(place.dtype, torch.float32)
        empty = empty_moments(groups, self.in_features, place.device, dtype)
        for name, value in empty._asdict().items():
            self.register_buffer(f"running_{name}", value)

    def _forget(self) -> None:
        for value in self.moments:
            value.zero_()
        self.moments.unit.fill_(1)

    @property
    def moments(self) -> Moments:
        """The running statistics."""
        return Moments(*(getattr(self, name) for name in _STATISTICS))

    def _learn(self, features: Tensor, weights: Tensor | None) -> None:
        found = update_moments(
            self.moments,
            features,
            weights,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            fourth=self.has_covariance and self.whitener.adaptive,
            rescale=self._rescales(),
            inplace=self._overwrites(),
        )
        self._keep(zip(_STATISTICS, found, strict=True))


class Total(MomentsBackground):
    """Running mean and covariance of all features, shrunk and inverted every few steps.

    It needs no labels, and divides away the variance that tells classes apart with the rest:
    behind many networks :class:`Within` serves LACE better.

    Args:
        in_features: width of the features.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature.
        refresh_every: training steps between two whitenings; the mean moves every step.
        method: ``"cholesky"``, or ``"newton-schulz"``, which needs matrix products only and gives
            the symmetric whitening that turns features least.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> background = Total(2, shrinkage=1e-4)
        >>> x = torch.randn(1000, 2) * torch.tensor([10.0, 1.0]) + 5
        >>> background(x).T.cov().round(decimals=1).abs()
        tensor([[1., 0.],
                [0., 1.]])
    """

    def __init__(
        self,
        in_features: int,
        *,
        shrinkage: Shrinkage = 0.01,
        decay: Decay = 0.99,
        refresh_every: int = 10,
        method: Method = "cholesky",
        mean: bool = True,
        covariance: bool = True,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self._configure(decay, refresh_every, sync)
        self.whitener = Whitener(shrinkage, method)
        self._register(1, device, dtype)
        self.register_buffer("whitening", torch.empty_like(self.running_covariance[0]))
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero mean, identity whitening."""
        with torch.no_grad():
            self._forget()
            self.whitening.zero_().fill_diagonal_(1)
            self._clock.zero_()

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        mean = self.running_mean[0]
        return mean if self.has_mean else torch.zeros_like(mean)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        self._learn(features, None if targets is None else (targets >= 0).unsqueeze(0))

    def _derive(self) -> tuple[Tensor, ...]:
        return (self.whitener.whitening(self.moments)[0],)

    def extra_repr(self) -> str:
        """What matters: width, shrinkage, method, decay, refresh."""
        parts = [super().extra_repr(), str(self.whitener), f"decay={self.decay}"]
        return ", ".join([*parts, f"refresh_every={self.refresh_every}"])


def one_hot(targets: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Membership of every sample in every class, (C, N); a negative label belongs to none."""
    return (torch.arange(classes, device=targets.device)[:, None] == targets).to(dtype)
