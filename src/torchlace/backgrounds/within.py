"""The background within classes: what varies and tells no class from another."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_classes, check_number
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.base import Background
from torchlace.backgrounds.running import Running
from torchlace.backgrounds.total import Method
from torchlace.functional import cholesky_whitening, newton_schulz_whitening
from torchlace.functional.class_moments import (
    ClassMoments,
    Signal,
    empty_class_moments,
    signal,
    update_class_moments,
    variances,
)
from torchlace.functional.moments import Decay

# Of the mean variance: keeps fp32 factors finite where classes can hardly be told apart.
_LEAST_RIDGE = 1e-4
# In the order of ClassMoments; the mean of all classes is running_mean.
_STATISTICS = (
    *("running_mass", "running_squares", "class_means", "running_within", "running_unit"),
)


class ClassMomentsBackground(Running):
    """Running class means, the covariance about them, and where the classes lie in its whitening.

    Subclasses say what is kept of the covariance (``sketch``) and how it is whitened.
    """

    needs_targets = True
    ridge: float
    num_classes: int
    sketch: Tensor | None = None
    running_mean: Tensor
    class_anchors: Tensor

    def _register_classes(
        self, num_classes: int, ridge: float, columns: int | None, place: Tensor
    ) -> None:
        self.num_classes = check_classes(num_classes)
        self.ridge = check_number("ridge", ridge, 0)
        empty = empty_class_moments(num_classes, self.in_features, place.device, place.dtype)
        if columns is not None:
            empty = empty._replace(within=place.new_empty(self.in_features, columns))
        for name, value in zip(_STATISTICS, empty, strict=True):
            self.register_buffer(name, value)
        self.register_buffer("running_mean", torch.empty_like(empty.mean[0]))
        self.register_buffer("class_anchors", torch.empty_like(empty.mean))

    def _forget(self) -> None:
        for value in (*self.moments, self.running_mean, self.class_anchors):
            value.zero_()
        self.moments.unit.fill_(1)
        self._clock.zero_()

    @property
    def moments(self) -> ClassMoments:
        """The running statistics."""
        return ClassMoments(*(getattr(self, name) for name in _STATISTICS))

    @property
    def anchors(self) -> Tensor:
        """Where the classes lie in the whitened space, (C, d)."""
        return self.class_anchors

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.running_mean if self.has_mean else torch.zeros_like(self.running_mean)

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        assert targets is not None
        found = update_class_moments(
            self.moments,
            features,
            targets,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            sketch=self.sketch,
            rescale=self._rescales(),
            inplace=self._overwrites(),
        )
        self._keep(zip(_STATISTICS, found, strict=True))
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

    def extra_repr(self) -> str:
        """What matters: width, classes, ridge, decay, refresh."""
        width, *off = Background.extra_repr(self).split(", ")
        parts = [width, str(self.num_classes), *off, f"ridge={self.ridge}", f"decay={self.decay}"]
        return ", ".join([*parts, f"refresh_every={self.refresh_every}"])


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
        >>> background = Within(2, num_classes=2)
        >>> targets = torch.arange(1000) % 2
        >>> x = torch.randn(1000, 2) * torch.tensor([9.0, 0.1]) + targets[:, None]
        >>> whitened = background(x, targets)
        >>> bool(whitened[:, 0].std() < whitened[:, 1].std())  # noise is lowered below the signal
        True
    """

    _derived: tuple[str, ...] = ("whitening", "class_anchors")
    whitening: Tensor

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        ridge: float = 0.1,
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
        self.method = check_choice("method", method, ("cholesky", "newton-schulz"))
        place = torch.empty(0, device=device, dtype=dtype)
        place = place.to(torch.promote_types(place.dtype, torch.float32))
        self._register_classes(num_classes, ridge, None, place)
        self.register_buffer("whitening", place.new_empty(in_features, in_features))
        if not covariance:
            self._derived = ("class_anchors",)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitening."""
        with torch.no_grad():
            self._forget()
            self.whitening.zero_().fill_diagonal_(1)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

    def _derive(self) -> tuple[Tensor, ...]:
        if not self.has_covariance:
            return (self._anchored(self._offsets()),)
        factor, unit = whitening_of(*self._ridged(), self.method), self.moments.unit
        return factor / unit, self._anchored((self._offsets() / unit) @ factor.mT)

    def extra_repr(self) -> str:
        """With the method."""
        return f"{super().extra_repr()}, method={self.method!r}"


def whitening_of(covariance: Tensor, ridge: Tensor, method: str) -> Tensor:
    """W with WᵀW the inverse of a covariance whose diagonal is raised by a ridge first."""
    covariance.diagonal().add_(ridge)
    if method == "cholesky":
        return cholesky_whitening(covariance)
    return newton_schulz_whitening(covariance, condition=len(covariance) / _LEAST_RIDGE)
