"""The background within classes: what varies and tells no class from another."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace._checks import check_choice, check_classes, check_number
from torchlace.backgrounds.estimated import Method
from torchlace.backgrounds.running import Running, constant_when_compiled
from torchlace.functional import cholesky_whitening, newton_schulz_whitening
from torchlace.functional.class_moments import (
    ClassMoments,
    empty_class_moments,
    signal,
    update_class_moments,
)
from torchlace.functional.moments import Decay

# Of the mean variance: keeps fp32 factors finite where classes can hardly be told apart.
_LEAST_RIDGE = 1e-4
# In the order of ClassMoments; the mean of all classes is running_mean.
_STATISTICS = (
    *("running_mass", "running_squares", "class_means", "running_within", "running_unit"),
)


class Within(Running):
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

    _derived: tuple[str, ...] = ("whitening",)
    needs_targets = True
    running_mean: Tensor
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
        self.num_classes = check_classes(num_classes)
        self.ridge = check_number("ridge", ridge, 0)
        self.method = check_choice("method", method, ("cholesky", "newton-schulz"))
        place = torch.empty(0, device=device, dtype=dtype)
        dtype = torch.promote_types(place.dtype, torch.float32)
        empty = empty_class_moments(num_classes, in_features, place.device, dtype)
        for name, value in zip(_STATISTICS, empty, strict=True):
            self.register_buffer(name, value)
        self.register_buffer("running_mean", torch.empty_like(empty.within[0]))
        self.register_buffer("whitening", torch.empty_like(empty.within))
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitening."""
        with torch.no_grad():
            for buffer in self.buffers():
                buffer.zero_()
            self.moments.unit.fill_(1)
            self.whitening.fill_diagonal_(1)
            self._clock.zero_()

    @property
    def moments(self) -> ClassMoments:
        """The running statistics."""
        return ClassMoments(*(getattr(self, name) for name in _STATISTICS))

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.running_mean if self.has_mean else torch.zeros_like(self.running_mean)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        assert targets is not None
        found = update_class_moments(
            self.moments,
            features,
            targets,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            rescale=self._rescales(),
            inplace=self._overwrites(),
        )
        self._keep(zip(_STATISTICS, found, strict=True))
        mass = self.moments.mass
        everyone = mass.sum().clamp_min(torch.finfo(mass.dtype).tiny)
        self.running_mean.copy_((mass / everyone) @ self.moments.mean)

    def _derive(self) -> tuple[Tensor, ...]:
        moments = self.moments
        within, between = signal(moments)
        variance = within.diagonal().mean() + between
        rho, least = self._ridges()
        ridge = rho * between
        # Of a signal that nothing is known of yet, no direction may be lifted above another.
        unknown = ridge <= 0
        covariance = torch.where(unknown, 0, within)
        ridge = torch.where(
            unknown, torch.where(variance > 0, variance, 1), ridge + least * variance
        )
        covariance.diagonal().add_(ridge)
        return (self._factor(covariance) / moments.unit,)

    def _factor(self, covariance: Tensor) -> Tensor:
        if self.method == "cholesky":
            return cholesky_whitening(covariance)
        return newton_schulz_whitening(covariance, condition=len(covariance) / _LEAST_RIDGE)

    @constant_when_compiled
    def _ridges(self) -> tuple[float, float]:
        return self.ridge, _LEAST_RIDGE

    def extra_repr(self) -> str:
        """What matters: width, classes, ridge, method, decay, refresh."""
        width, *off = super().extra_repr().split(", ")
        parts = [width, str(self.num_classes), *off, f"ridge={self.ridge}"]
        parts += [f"method={self.method!r}", f"decay={self.decay}"]
        return ", ".join([*parts, f"refresh_every={self.refresh_every}"])
