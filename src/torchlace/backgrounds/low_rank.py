"""Low rank plus diagonal: backgrounds for 2,048 features and more, linear in the width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlace._checks import check_count, check_number
from torchlace._precision import widened
from torchlace._torch import constant_when_compiled
from torchlace.backgrounds.base import Background
from torchlace.backgrounds.running import Running
from torchlace.backgrounds.within import ClassMomentsBackground
from torchlace.functional import cholesky
from torchlace.functional.class_moments import scatter
from torchlace.functional.moments import (
    Decay,
    deviations,
    follow,
    largest,
    merge,
    only_finite,
    reach,
    remembered,
    scatter_rows,
)


class LearnedLowRank(Background):
    """Σ⁻¹ = D + VᵀV with a positive diagonal D and an r × d factor V, learned.

    Whitening stacks both parts, [D^½(x - μ), V(x - μ)], which has the inner products of Σ⁻¹ and
    d + r entries.

    Args:
        in_features: width of the features.
        rank: r.
        mean: subtract a mean.
        covariance: whiten.
        device: as in torch layers.
        dtype: as in torch layers.

    Example:
        >>> LearnedLowRank(8, rank=2).whiten(torch.ones(1, 8)).shape
        torch.Size([1, 10])
    """

    def __init__(
        self,
        in_features: int,
        *,
        rank: int = 64,
        mean: bool = True,
        covariance: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self.rank = min(check_count("rank", rank), in_features)
        center = torch.zeros(in_features, device=device, dtype=dtype)
        self._place_mean(center)
        if covariance:
            self.out_features = in_features + self.rank
            self.log_diagonal = nn.Parameter(torch.empty_like(center))
            self.factor = nn.Parameter(center.new_empty(self.rank, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start near the identity: at V = 0 the factor would get no gradient."""
        with torch.no_grad():
            self.location.zero_()
            if self.has_covariance:
                self.log_diagonal.zero_()
                self.factor.normal_(std=0.1 / self.in_features**0.5)

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.location

    def transform(self, vectors: Tensor) -> Tensor:
        """[D^½v, Vv] for every row."""
        if not self.has_covariance:
            return vectors
        diagonal = (0.5 * widened(self.log_diagonal, vectors.dtype)).exp()
        factor = widened(self.factor, vectors.dtype)
        return torch.cat([vectors * diagonal, vectors @ factor.mT], dim=-1)

    def extra_repr(self) -> str:
        """Width and rank."""
        return f"{super().extra_repr()}, rank={self.rank}"


class _Sketched(Running):
    """Σ ≈ FFᵀ + Ψ with a d × r factor F and a diagonal Ψ, from the variances and Y = ΣΩ.

    Ω is a fixed random d × r matrix, and both are linear in Σ, so they are exact running averages.
    F = Y·chol(ΩᵀY)⁻ᵀ is the Nyström approximation, which never exceeds Σ, and Ψ is what is left of
    the variances, so the diagonal of Σ is exact. A d × d matrix is never formed; the whitening
    costs 4·d·r operations a sample.
    """

    rank: int
    probe: Tensor
    deviation: Tensor
    down: Tensor
    up: Tensor

    def _register_factors(self, rank: int, place: Tensor) -> None:
        self.rank = min(check_count("rank", rank), self.in_features)
        self.register_buffer("deviation", place.new_zeros(self.in_features))
        for name in ("probe", "down", "up"):
            self.register_buffer(name, place.new_zeros(self.in_features, self.rank))

    def _start_factors(self) -> None:
        # Drawn from a fixed seed: all processes must sketch with the same matrix.
        drawn = torch.randn(self.probe.shape, generator=torch.Generator().manual_seed(0))
        self.probe.copy_(drawn)
        self.deviation.fill_(1)
        self.down.zero_()
        self.up.zero_()

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        names = ("deviation", "down", "up")
        return _whiten(vectors, *(self._in_use(name, vectors.dtype) for name in names))

    def _factors(self, sketch: Tensor, variance: Tensor, ridge: Tensor) -> tuple[Tensor, ...]:
        """What whitens by FFᵀ + Ψ + ridge·I: deviations, and both sides of the low rank."""
        identity = torch.eye(self.rank, dtype=sketch.dtype, device=sketch.device)
        core = self.probe.mT @ sketch
        core = 0.5 * (core + core.mT)
        trace = core.diagonal().sum()
        # Fewer samples than columns leave the core singular: its rounding errors must stay below.
        least = torch.where(trace > 0, 10 * torch.finfo(core.dtype).eps * trace, 1)
        factor = _right_divide(sketch, cholesky(core + least * identity))
        factor = torch.where(trace > 0, factor, 0)
        rest = (variance - factor.square().sum(1)).clamp_min(0) + ridge
        # W = (I - G (I + Lᵀ)⁻¹ L⁻¹ Gᵀ) Ψ^(-½) with LLᵀ = I + GᵀG satisfies WᵀW = (Ψ + FFᵀ)⁻¹.
        down = factor / rest.sqrt()[:, None]
        lower = cholesky(identity + down.mT @ down)
        upper = (identity + lower).mT
        inner = torch.linalg.solve_triangular(lower, identity, upper=False)
        inner = torch.linalg.solve_triangular(upper, inner, upper=True)
        return rest.sqrt(), down, down @ inner


class LowRank(_Sketched, ClassMomentsBackground):
    """Running covariance within classes of low rank plus a diagonal, with :class:`Within`'s ridge.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        rank: r.
        ridge: in units of the signal between the classes.
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature of the sketch.
        refresh_every: training steps between two whitenings.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> background = LowRank(2048, 10, rank=64)
        >>> background(torch.randn(32, 2048), torch.randint(10, (32,))).shape
        torch.Size([32, 2048])
    """

    _derived: tuple[str, ...] = ("deviation", "down", "up", "class_anchors")

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        rank: int = 64,
        ridge: float = 0.1,
        decay: Decay = 0.99,
        refresh_every: int = 10,
        mean: bool = True,
        covariance: bool = True,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self._configure(decay, refresh_every, sync)
        place = torch.empty(0, device=device, dtype=dtype)
        place = place.to(torch.promote_types(place.dtype, torch.float32))
        self._register_factors(rank, place)
        self._register_classes(num_classes, ridge, 1 + self.rank, place)
        if not covariance:
            self._derived = ("class_anchors",)
        self.reset_parameters()

    @property
    def sketch(self) -> Tensor:  # type: ignore[override]  # what others have none of
        """Ω, (d, r)."""
        return self.probe

    def reset_parameters(self) -> None:
        """Forget everything."""
        with torch.no_grad():
            self._forget()
            self._start_factors()

    def _derive(self) -> tuple[Tensor, ...]:
        if not self.has_covariance:
            return (self._anchored(self._offsets()),)
        within, ridge = self._ridged()
        deviation, down, up = self._factors(within[:, 1:], within[:, 0], ridge)
        unit = self.moments.unit
        anchors = _whiten(self._offsets() / unit, deviation, down, up)
        return deviation * unit, down, up, self._anchored(anchors)

    def extra_repr(self) -> str:
        """With the rank."""
        return f"{super().extra_repr()}, rank={self.rank}"


class LowRankTotal(_Sketched):
    """Running covariance of all features, of low rank plus a diagonal, shrunk as :class:`Total`'s.

    Args:
        in_features: width of the features.
        rank: r.
        shrinkage: towards the mean variance, in [1e-4, 1].
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature of the sketch.
        refresh_every: training steps between two whitenings.
        mean: subtract the mean.
        covariance: whiten.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.

    Example:
        >>> LowRankTotal(2048, rank=64)(torch.randn(32, 2048)).shape
        torch.Size([32, 2048])
    """

    _derived: tuple[str, ...] = ("deviation", "down", "up")
    running_mean: Tensor
    running_mass: Tensor
    running_unit: Tensor
    running_variance: Tensor
    running_sketch: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        rank: int = 64,
        shrinkage: float = 0.01,
        decay: Decay = 0.99,
        refresh_every: int = 10,
        mean: bool = True,
        covariance: bool = True,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_features, mean=mean, covariance=covariance)
        self._configure(decay, refresh_every, sync)
        self.shrinkage = check_number("shrinkage", shrinkage, 1e-4, 1, closed=True)
        place = torch.empty(0, device=device, dtype=dtype)
        place = place.to(torch.promote_types(place.dtype, torch.float32))
        self._register_factors(rank, place)
        for name in ("running_mass", "running_unit"):
            self.register_buffer(name, place.new_zeros(1))
        for name in ("running_mean", "running_variance"):
            self.register_buffer(name, place.new_zeros(in_features))
        self.register_buffer("running_sketch", place.new_zeros(in_features, self.rank))
        if not covariance:
            self._derived = ()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Forget everything."""
        with torch.no_grad():
            for buffer in self.buffers():
                buffer.zero_()
            self.running_unit.fill_(1)
            self._start_factors()
            self._clock.zero_()

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.running_mean if self.has_mean else torch.zeros_like(self.running_mean)

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        reduction = self._reduction()
        counted = features.new_ones(1, dtype=torch.bool) if targets is None else targets >= 0
        counted = counted.expand(features.shape[0])
        shifted = deviations(features, self.running_mean, None if targets is None else counted)
        count = counted.sum(0, keepdim=True, dtype=shifted.dtype)
        sums = torch.cat([largest(shifted), count, shifted.sum(0)])
        rescales, unit = self._rescales(), self.running_unit
        limit = None if rescales or not self.has_covariance else reach(unit)
        finite, sums = only_finite(sums if reduction is None else reduction(sums), limit)
        if rescales and self.has_covariance:
            new, ratio = follow(unit, self.running_variance.amax(), sums[:1])
            self.running_variance.mul_(ratio.square())
            self.running_sketch.mul_(ratio.square())
            unit.copy_(new)
        kept = remembered(self.decay, sums[1], self.rank)
        step = merge(self.running_mass[0], finite & counted, sums[1], sums[2:], kept)
        self.running_mean.add_(step.shift)
        self.running_mass.copy_(step.mass)
        if not self.has_covariance:
            return

        shifted = torch.where(finite, shifted, step.shift)
        rows = scatter_rows(shifted, step, unit)
        if reduction is None:
            sums = scatter(rows, self.probe)
        else:
            sums = reduction(scatter(rows[:-1], self.probe)) + scatter(rows[-1:], self.probe)
        self.running_variance.mul_(step.keep).add_(sums[:, 0])
        self.running_sketch.mul_(step.keep).add_(sums[:, 1:])

    def _derive(self) -> tuple[Tensor, ...]:
        shrinkage, variance = self._amount(), self.running_variance
        ridge = shrinkage * variance.mean()
        ridge = torch.where(ridge > 0, ridge, 1)
        sketch, variance = (1 - shrinkage) * self.running_sketch, (1 - shrinkage) * variance
        deviation, down, up = self._factors(sketch, variance, ridge)
        return deviation * self.running_unit, down, up

    @constant_when_compiled
    def _amount(self) -> float:
        return self.shrinkage

    def extra_repr(self) -> str:
        """Width, rank, shrinkage, decay, refresh."""
        parts = [super().extra_repr(), f"rank={self.rank}", f"shrinkage={self.shrinkage}"]
        return ", ".join([*parts, f"decay={self.decay}", f"refresh_every={self.refresh_every}"])


def _whiten(vectors: Tensor, deviation: Tensor, down: Tensor, up: Tensor) -> Tensor:
    scaled = vectors / deviation
    flat = scaled.reshape(-1, scaled.shape[-1])
    return torch.addmm(flat, flat @ down, up.mT, alpha=-1).view_as(scaled)


def _right_divide(matrix: Tensor, lower: Tensor) -> Tensor:
    """Matrix · lower⁻ᵀ."""
    quotient: Tensor = torch.linalg.solve_triangular(lower.mT, matrix, upper=True, left=False)
    return quotient
