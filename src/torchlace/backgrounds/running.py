"""Backgrounds that follow the features: statistics every step, a whitening every few steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from torchlace._checks import (
    check_choice,
    check_feature_shape,
    check_number,
    largest_seen,
)
from torchlace._torch import mapped, transforming
from torchlace.backgrounds.clock import Clocked
from torchlace.functional import cholesky_whitening, newton_schulz_whitening
from torchlace.functional.merging import Decay
from torchlace.functional.targets import Targets, check_target_kind, in_rows

Method = Literal["cholesky", "newton-schulz"]


class Running(Clocked):
    """What all estimated backgrounds share: statistics that follow the features, and their options.

    A subclass registers its statistics and what it derives from them as buffers, and defines
    :meth:`_update` (statistics from a batch, in place) and :meth:`_derive` (the tensors named in
    ``_derived``, from the statistics). Moments are registered by :meth:`_hold_moments` and follow a
    batch by :meth:`_merge`.

    Args:
        *sizes: width of the features, and the number of classes where it is known.
        decay: what a batch still counts one step later; ``"auto"``: .99, or more where a hundred
            batches hold fewer than 50 samples for each feature (of a sketch: for each column; of a
            covariance for each class: for each feature and class).
        refresh_every: training steps between two whitenings; the mean moves every step.
        sync: sum statistics over all processes of the default group, where there is one.
        device: as in torch layers.
        dtype: as in torch layers; half precision is kept in fp32.
        **options: ``mean``: subtract the mean; ``covariance``: whiten.

    Example:
        >>> from torchlace.backgrounds import Total
        >>> background = Total(2)
        >>> _ = background(torch.randn(8, 2))
        >>> isinstance(background, Running), background.steps
        (True, 1)
    """

    _statistics: tuple[str, ...] = ()  # names of the moments, in their order
    _space = "whitened"  # where signatures train better
    sketch: Tensor | None = None
    running_mean: Tensor
    running_unit: Tensor
    whitening: Tensor

    def __init__(
        self,
        *sizes: int,
        decay: Decay = 0.99,
        sync: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*sizes, **options)
        if isinstance(decay, str):
            check_choice("decay", decay, ("auto",))
        else:
            decay = check_number("decay", decay, 0, 1, closed=True)
        if decay == 1:
            raise ValueError("decay must be below 1: at 1 nothing new would ever be learned")
        self.decay = decay
        self.sync = sync
        unit = torch.empty(1, device=device, dtype=dtype)
        unit = unit.to(torch.promote_types(unit.dtype, torch.float32))
        self.register_buffer("running_unit", unit)

    def reset_parameters(self) -> None:
        """Forget everything: zero means, identity whitening."""
        with torch.no_grad():
            for buffer in self.buffers():
                buffer.zero_()
            self.running_unit.fill_(1)
            self._start()
            self._clock.zero_()

    @property
    def moments(self) -> tuple[Tensor, ...]:
        """The running statistics."""
        raise NotImplementedError(f"{type(self).__name__} must define moments")

    @property
    def mean(self) -> Tensor:
        """μ, (d,); zero where it is switched off."""
        return self.running_mean if self.has_mean else torch.zeros_like(self.running_mean)

    def transform(self, vectors: Tensor) -> Tensor:
        """Wv for every row."""
        if not self.has_covariance:
            return vectors
        return vectors @ self._in_use("whitening", vectors.dtype).mT

    def observe(self, features: Tensor, targets: Targets | None = None) -> None:
        """Learn from a batch, but for samples of a negative label; in evaluation, nothing moves."""
        if not self.training:
            return
        check_feature_shape(features, self.in_features)
        if targets is not None:
            check_target_kind(targets, len(features), self.num_classes)
        elif self.needs_targets:
            self._go_without_targets()
            return
        if mapped(features) and not mapped(self.running_mean):
            raise RuntimeError(
                "one background can't learn from samples that torch.func.vmap keeps apart: call "
                ".eval() on the head or background first, or map over stacked buffers too"
            )
        with torch.no_grad():
            dtype = self._statistics_dtype()
            if targets is not None:
                targets = in_rows(targets, dtype, -1)
            self._update(features.detach().to(dtype), targets)
            self._tick()

    def least(self, dtype: torch.dtype) -> float:
        """The length up to which a whitened sample counts as zero, as the mean does.

        It is the rounding of a deviation where tiny features were learned from, if values are
        looked at: their whitening is so large that slopes over less would be infinite.
        """
        unit = largest_seen(self.running_unit) if self.has_covariance else 0
        tiny = 0 < unit < float(torch.finfo(dtype).max) ** -0.25
        return torch.finfo(dtype).eps if tiny else super().least(dtype)

    def check_scale(self, features: Tensor) -> None:
        """Raise for features that whitening would make too large, where values are looked at."""
        size, most = largest_seen(features), float(torch.finfo(features.dtype).max)
        if self.has_mean and size > 0:
            size = max(size, largest_seen(self.running_mean))
        if size <= most**0.25:  # within reach of any whitening
            return
        whitened = size * self._gain().item()
        if not whitened <= most**0.9:
            raise ValueError(
                f"features lie up to {size:.2g} from the mean of the background, and "
                f"{type(self).__name__} would whiten that to {whitened:.2g}, so much smaller are "
                "the deviations it was estimated from; the network diverged or its input is on "
                "another scale: normalise the features"
            )

    @torch.no_grad()
    def _gain(self) -> Tensor:
        """The largest entry of W."""
        identity = torch.eye(self.in_features, dtype=self._statistics_dtype())
        return self.transform(identity.to(self.running_mean.device)).abs().max()

    def _go_without_targets(self) -> None:
        """Say that nothing is learned; raise where nothing was, and gradients would go by it."""
        text = (
            f"{type(self).__name__} learns from labels, and there are none here: call "
            "head.loss(features, targets) to train, or .eval() first to predict"
        )
        compiling = torch.compiler.is_compiling()
        if not compiling and torch.is_grad_enabled() and self.steps == 0:
            raise ValueError(
                f"{text}; with a loss of your own, call head.background.observe(features, targets) "
                "before head(features)"
            )
        warnings.warn(text, UserWarning, stacklevel=3)

    def _hold(self, **shapes: tuple[int, ...]) -> None:
        """Register buffers; :meth:`reset_parameters` fills them."""
        for name, shape in shapes.items():
            self.register_buffer(name, self.running_unit.new_empty(shape))

    def _hold_moments(self, empty: Callable[..., tuple[Tensor, ...]], groups: int) -> None:
        """Register moments, made by a function of :mod:`torchlace.functional`."""
        unit = self.running_unit
        made = empty(groups, self.in_features, unit.device, unit.dtype, sketch=self.sketch)
        for name, value in zip(self._statistics, made, strict=True):
            self.register_buffer(name, value)

    def _start(self) -> None:
        """Fill what does not begin at zero."""
        self.whitening.diagonal(dim1=-2, dim2=-1).fill_(1)

    def _merge(
        self, update: Callable[..., tuple[Tensor, ...]], *batch: Targets | None, **more: Any
    ) -> None:
        """Merge a batch into the moments, by an update of :mod:`torchlace.functional`.

        Eagerly, in place: a fresh d × d matrix costs as much as a product. The compiler needs no
        telling, and torch.func forbids it.
        """
        found = update(
            self.moments,
            *batch,
            self.decay,
            self._reduction(),
            covariance=self.has_covariance,
            sketch=self.sketch,
            rescale=self._rescales(),
            inplace=not (torch.compiler.is_compiling() or transforming()),
            **more,
        )
        for name, value in zip(self._statistics, found, strict=True):
            own: Tensor = getattr(self, name)
            if value is not own:
                own.copy_(value)

    def _update(self, features: Tensor, targets: Targets | None) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _update")

    def _reduction(self) -> Callable[[Tensor], Tensor] | None:
        """The sum over all processes, or None where there is only one."""
        if not (self.sync and dist.is_available() and dist.is_initialized()):
            return None
        return _all_reduce if dist.get_world_size() > 1 else None

    def _statistics_dtype(self) -> torch.dtype:
        return self.running_mean.dtype


def check_method(method: Method) -> Method:
    """Raise unless there is such a way to whiten."""
    check_choice("method", method, ("cholesky", "newton-schulz"))
    return method


def factorised(covariance: Tensor, method: Method, least: float) -> Tensor:
    """W with W Σ Wᵀ = I, for Σ (..., d, d) whose diagonal was raised by ``least`` of its mean."""
    if method == "cholesky":
        return cholesky_whitening(covariance)
    return newton_schulz_whitening(covariance, condition=covariance.shape[-1] / least)


def _all_reduce(tensor: Tensor) -> Tensor:
    dist.all_reduce(tensor)
    return tensor
