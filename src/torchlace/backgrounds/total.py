"""The background of all samples, whatever their class."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_number
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.running import Method, Running, check_method, factorised
from torchlace.functional import Moments, empty_moments, ledoit_wolf, shrink, update_moments
from torchlace.functional.targets import Targets, labelled

Shrinkage = float | Literal["ledoit-wolf"]

# Ledoit and Wolf may find that no shrinkage is needed; a trace of it keeps fp32 factors finite.
LEAST_SHRINKAGE = 1e-4


class MomentsBackground(Running):
    """Running mean and covariance of all samples, or of several groups of them."""

    _statistics = tuple(f"running_{name}" for name in Moments._fields)
    running_covariance: Tensor

    @property
    def moments(self) -> Moments:
        """The running statistics."""
        return Moments(*(getattr(self, name) for name in self._statistics))

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        mean = self.running_mean[0]
        return mean if self.has_mean else torch.zeros_like(mean)

    def _update(self, features: Tensor, targets: Targets | None) -> None:
        self._learn(features, None if targets is None else labelled(targets).unsqueeze(0))

    def _learn(self, features: Tensor, weights: Tensor | None) -> None:
        self._merge(update_moments, features, weights, fourth=False)


class Shrunk(MomentsBackground):
    """Running covariances that are shrunk, then factorised.

    Args:
        *sizes: width of the features, and the number of classes where it is known.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        method: ``"cholesky"`` or ``"newton-schulz"``.
        **options: as for :class:`Running`.
    """

    _shown: tuple[str, ...] = ("shrinkage", "method")

    def __init__(
        self, *sizes: int, shrinkage: Shrinkage, method: Method = "cholesky", **options: Any
    ) -> None:
        super().__init__(*sizes, **options)
        if isinstance(shrinkage, str):
            check_choice("shrinkage", shrinkage, ("ledoit-wolf",))
        else:
            shrinkage = check_number("shrinkage", shrinkage, LEAST_SHRINKAGE, 1, closed=True)
        self.shrinkage = shrinkage
        self.method = check_method(method)

    def _learn(self, features: Tensor, weights: Tensor | None) -> None:
        fourth = self.has_covariance and isinstance(self.shrinkage, str)
        self._merge(update_moments, features, weights, fourth=fourth)

    def _derive(self) -> tuple[Tensor, ...]:
        moments, amount = self.moments, self._least_shrinkage()
        shrinkage: float | Tensor = amount
        if isinstance(self.shrinkage, str):
            shrinkage = ledoit_wolf(moments.covariance, moments.fourth, moments.spread)
            shrinkage = shrinkage.clamp_min(amount)
        shrunk = shrink(moments.covariance, shrinkage)
        whitening = factorised(shrunk, self.method, amount) / moments.unit
        return (whitening.view_as(self.whitening),)

    @constant_when_compiled
    def _least_shrinkage(self) -> float:
        return LEAST_SHRINKAGE if isinstance(self.shrinkage, str) else self.shrinkage


class Total(Shrunk):
    """Running mean and covariance of all features, shrunk and inverted every few steps.

    It needs no labels, and divides away the variance that tells classes apart with the rest:
    behind many networks :class:`Within` serves LACE better.

    Args:
        in_features: width of the features.
        shrinkage: towards the mean variance: a number in [1e-4, 1], or ``"ledoit-wolf"``.
        method: ``"cholesky"``, or ``"newton-schulz"``, which needs matrix products only and gives
            the symmetric whitening that turns features least.
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> background = Total(2, shrinkage=1e-4)
        >>> x = torch.randn(1000, 2) * torch.tensor([10.0, 1.0]) + 5
        >>> background(x).T.cov().round(decimals=1).abs()
        tensor([[1., 0.],
                [0., 1.]])
    """

    _shown = ("shrinkage", "method", "decay", "refresh_every")

    def __init__(self, in_features: int, *, shrinkage: Shrinkage = 0.01, **options: Any) -> None:
        super().__init__(in_features, shrinkage=shrinkage, **options)
        self._hold_moments(empty_moments, 1)
        self._hold(whitening=(in_features, in_features))
        self.reset_parameters()
