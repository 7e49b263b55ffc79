"""Estimated backgrounds with one whitening for all classes: of all samples, and within classes."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_number
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.base import KnowsClasses
from torchlace.backgrounds.running import Method, Running, check_method, factorised
from torchlace.functional import (
    ClassMoments,
    Moments,
    empty_class_moments,
    empty_moments,
    ledoit_wolf,
    shrink,
    signal,
    update_class_moments,
    update_moments,
)
from torchlace.functional.class_moments import Signal
from torchlace.functional.merging import variances
from torchlace.functional.targets import Targets, labelled

Shrinkage = float | Literal["ledoit-wolf"]

# Ledoit and Wolf may find that no shrinkage is needed; a trace of it keeps fp32 factors finite.
LEAST_SHRINKAGE = 1e-4
# Of the mean variance: keeps fp32 factors finite where classes can hardly be told apart.
_LEAST_RIDGE = 1e-4


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
    """Running covariances that are shrunk, then factorised."""

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


class ClassMomentsBackground(Running, KnowsClasses):
    """Running class means, the covariance about them, and where the classes lie in its whitening.

    The ridge is in units of the signal between the classes.
    """

    needs_targets = True
    _derived_of_means: tuple[str, ...] = ("class_anchors",)
    _statistics = (
        *("running_mass", "running_squares", "class_means", "running_within", "running_unit"),
    )  # the mean of all classes is running_mean
    class_anchors: Tensor

    def __init__(
        self, in_features: int, num_classes: int, *, ridge: float = 0.1, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.ridge = check_number("ridge", ridge, 0)
        self._hold(running_mean=(in_features,), class_anchors=(num_classes, in_features))

    @property
    def moments(self) -> ClassMoments:
        """The running statistics."""
        return ClassMoments(*(getattr(self, name) for name in self._statistics))

    @property
    def anchors(self) -> Tensor:
        """Where the classes lie in the whitened space, (C, d)."""
        return self.class_anchors

    def _update(self, features: Tensor, targets: Targets | None) -> None:
        self._merge(update_class_moments, features, targets)
        mass = self.moments.mass
        everyone = mass.sum().clamp_min(torch.finfo(mass.dtype).tiny)
        self.running_mean.copy_((mass / everyone) @ self.moments.mean)

    def _ridged(self) -> Signal:
        """The covariance within classes, and what is added to its diagonal, in units squared."""
        within, between = signal(self.moments, self.sketch)
        variance = variances(within, self.sketch).mean() + between
        rho, least = self._ridges()
        ridge = rho * between
        # Of a signal that nothing is known of yet, no direction may be lifted above another.
        unknown = ridge <= 0
        alone = torch.where(variance > 0, variance, 1)
        return Signal(
            torch.where(unknown, 0, within),
            torch.where(unknown, alone, ridge + least * variance),
        )

    def _offsets(self) -> Tensor:
        """The class means less the mean, (C, d); zero for classes that were never seen."""
        return self._distinct(self.moments.mean - self.mean)

    def _distinct(self, offsets: Tensor) -> Tensor:
        """Offsets of classes; zero for those never seen, and where they are too small to tell."""
        # Denormal numbers are zeros with an error, whose directions mean nothing.
        known = (self.moments.mass > 0)[:, None] & (
            offsets.abs() >= torch.finfo(offsets.dtype).tiny
        )
        return offsets * known

    def _anchored(self, offsets: Tensor) -> Tensor:
        """Whitened offsets in units of their root mean square."""
        seen = (self.moments.mass > 0).sum().clamp_min(1)
        largest = offsets.abs().amax()  # so that no square overflows
        offsets = offsets / torch.where(largest > 0, largest, 1)
        square = offsets.square().sum() / seen
        return offsets * torch.where(square > 0, square, 1).rsqrt()

    @constant_when_compiled
    def _ridges(self) -> tuple[float, float]:
        return self.ridge, _LEAST_RIDGE


class Within(ClassMomentsBackground):
    """Running covariance within classes, with a ridge as high as the signal between them.

    It whitens by Σ = Σ_W + ρ·β·I, where Σ_W is the covariance of the samples about the means of
    their classes and β the variance between these means, in each of the directions they span. The
    variance that tells classes apart is never divided away, and noise over signal after whitening
    is at most 1 + λ_max(Σ_W) / (ρ·β) times what it was before.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        ridge: ρ.
        method: ``"cholesky"``, or ``"newton-schulz"``, which needs matrix products only and gives
            the symmetric whitening that turns features least.
        **options: ``decay``, ``refresh_every``, ``mean``, ``covariance``, ``sync``, ``device``,
            ``dtype`` as for :class:`Running`.

    Example:
        >>> background = Within(2, num_classes=2)
        >>> targets = torch.arange(1000) % 2
        >>> x = torch.randn(1000, 2) * torch.tensor([9.0, 0.1]) + targets[:, None]
        >>> whitened = background(x, targets)
        >>> bool(whitened[:, 0].std() < whitened[:, 1].std())  # noise is lowered below the signal
        True
    """

    _derived: tuple[str, ...] = ("whitening", "class_anchors")
    _shown = ("ridge", "decay", "refresh_every", "method")

    def __init__(
        self, in_features: int, num_classes: int, *, method: Method = "cholesky", **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.method = check_method(method)
        self._hold_moments(empty_class_moments, num_classes)
        self._hold(whitening=(in_features, in_features))
        self.reset_parameters()

    def _derive(self) -> tuple[Tensor, ...]:
        if not self.has_covariance:
            return (self._anchored(self._offsets()),)
        factor, unit = self._factorised(), self.moments.unit
        return factor / unit, self._anchored((self._offsets() / unit) @ factor.mT)

    def _factorised(self) -> Tensor:
        """W of the covariance with its ridge, in units."""
        covariance, ridge = self._ridged()
        covariance.diagonal().add_(ridge)
        return factorised(covariance, self.method, _LEAST_RIDGE)
