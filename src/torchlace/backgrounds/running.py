"""Backgrounds that follow the features: statistics every step, a whitening every few steps."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchlace._checks import (
    check_choice,
    check_count,
    check_feature_shape,
    check_number,
    check_target_shape,
    largest_seen,
)
from torchlace._torch import mapped, transformed, transforming, untransformed
from torchlace.backgrounds.base import Background
from torchlace.functional.moments import Decay


class Running(Background):
    """Machinery shared by estimated backgrounds.

    A subclass registers its statistics and what it derives from them as buffers, and defines
    :meth:`_update` (statistics from a batch, in place) and :meth:`_derive` (the tensors named in
    ``_derived``, from the statistics; there are none where only the mean is in use).

    The step counter lives on the host, so that the decision to refresh
    waits for no device; it is saved as the extra state of the module.

    Example:
        >>> from torchlace.backgrounds import Total
        >>> background = Total(2)
        >>> _ = background(torch.randn(8, 2))
        >>> isinstance(background, Running), background.steps
        (True, 1)
    """

    _derived: tuple[str, ...] = ()
    _space = "whitened"  # where signatures train better
    running_mean: Tensor
    running_unit: Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = torch.zeros((), dtype=torch.int64, device="cpu")
        self.forced: bool | None = None
        self._kept: dict[str, tuple[Tensor, int, torch.dtype, Tensor]] = {}

    def _configure(self, decay: Decay, refresh_every: int, sync: bool) -> None:
        if isinstance(decay, str):
            check_choice("decay", decay, ("auto",))
        else:
            decay = check_number("decay", decay, 0, 1, closed=True)
        self.decay = decay
        if decay == 1:
            raise ValueError("decay must be below 1: at 1 nothing new would ever be learned")
        self.refresh_every = check_count("refresh_every", refresh_every)
        self.sync = sync

    def observe(self, features: Tensor, targets: Tensor | None = None) -> None:
        """Learn from a batch, but for samples of a negative label; in evaluation, nothing moves."""
        if not self.training:
            return
        check_feature_shape(features, self.in_features)
        if targets is not None:
            check_target_shape(targets, features.shape[0])
        elif self.needs_targets:
            self._go_without_targets()
            return
        _check_mapped(features, self.running_mean)
        with torch.no_grad():
            self._update(features.detach().to(self._statistics_dtype()), targets)
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

    def refresh(self) -> None:
        """Derive the whitening from the statistics now."""
        if self._derived:
            with torch.no_grad():
                self._store(self._usable())

    @property
    def steps(self) -> int:
        """Training steps seen."""
        return int(self._clock)

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

    def _update(self, features: Tensor, targets: Tensor | None) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define _update")

    def _derive(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} must define _derive")

    def _tick(self) -> None:
        if self._derived:
            self._refresh_when_due()
        if transforming():
            # What was not given to a transform may not change in it, and the counter can't be
            # given: it is no buffer.
            with untransformed():
                self._clock += 1
        else:
            self._clock += 1

    def _refresh_when_due(self) -> None:
        if torch.compiler.is_compiling() and self.forced is None:
            # A Python branch on the counter would be compiled once for every step.
            due = self._clock % self.refresh_every == 0
            self._store(torch.cond(due, self._usable, self._current, ()))
        elif self._due():
            self._store(self._usable())

    def _overwrites(self) -> bool:
        """Whether statistics are updated in place: a fresh d × d matrix costs as much as a product.

        The compiler needs no telling, and torch.func forbids it.
        """
        return not (torch.compiler.is_compiling() or transforming())

    def _keep(self, found: Iterable[tuple[str, Tensor]]) -> None:
        """Store statistics by name, but for those that were updated in place."""
        for name, value in found:
            own: Tensor = getattr(self, name)
            if value is not own:
                own.copy_(value)

    def _due(self) -> bool:
        return self.steps % self.refresh_every == 0 if self.forced is None else self.forced

    def _rescales(self) -> bool:
        """Whether the unit of the covariance follows the features in this step.

        It does where the whitening is refreshed, and while there is little to go by; compiled,
        always: there it costs nothing.
        """
        if torch.compiler.is_compiling():
            return True
        return self._due() or (self.forced is None and self.steps < self.refresh_every)

    def _usable(self) -> tuple[Tensor, ...]:
        """What is derived, or what there was where a decomposition failed; all contiguous."""
        values = self._derive()
        finite = torch.stack([value.sum() for value in values]).sum().abs() < torch.inf
        return tuple(
            torch.where(finite, value, getattr(self, name)).contiguous()
            for name, value in zip(self._derived, values, strict=True)
        )

    def _in_use(self, name: str, dtype: torch.dtype) -> Tensor:
        """A derived tensor as autograd may keep it.

        A later forward may refresh in place, so eager training is given a copy, made once for each
        refresh; a captured or compiled step holds one forward and needs none.
        """
        buffer: Tensor = getattr(self, name)
        if not (self.training and torch.is_grad_enabled()) or torch.compiler.is_compiling():
            return buffer.to(dtype)
        if self.forced is not None:
            return buffer.to(dtype)
        if transformed(buffer):
            return buffer.to(dtype).clone()
        kept = self._kept.get(name)
        if kept is None or kept[0] is not buffer or kept[1:3] != (buffer._version, dtype):
            kept = (buffer, buffer._version, dtype, buffer.detach().to(dtype, copy=True))
            self._kept[name] = kept
        return kept[3]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def _current(self) -> tuple[Tensor, ...]:
        return tuple(getattr(self, name).clone() for name in self._derived)

    def _store(self, values: tuple[Tensor, ...]) -> None:
        for name, value in zip(self._derived, values, strict=True):
            getattr(self, name).copy_(value)

    def _reduction(self) -> Callable[[Tensor], Tensor] | None:
        """The sum over all processes, or None where there is only one."""
        if not (self.sync and dist.is_available() and dist.is_initialized()):
            return None
        return _all_reduce if dist.get_world_size() > 1 else None

    def _statistics_dtype(self) -> torch.dtype:
        return self.running_mean.dtype

    def get_extra_state(self) -> Tensor:
        """The step counter."""
        return self._clock.clone()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the step counter."""
        self._clock = torch.as_tensor(state, dtype=torch.int64, device="cpu").clone()


@contextmanager
def refreshing(module: nn.Module, now: bool) -> Iterator[None]:
    """Inside, every estimated background in ``module`` refreshes each step, or none does.

    For CUDA graphs: capture one step with and one without, then replay the first every
    ``refresh_every`` steps. A replay does not run Python, so the backgrounds' own counters stand
    still; :func:`advance` moves them.

    Example:
        >>> from torchlace.backgrounds import Total
        >>> background = Total(2)
        >>> with refreshing(background, False):
        ...     _ = background(torch.randn(8, 2))
        >>> background.whitening.tolist()  # as it was
        [[1.0, 0.0], [0.0, 1.0]]
    """
    running = [part for part in module.modules() if isinstance(part, Running)]
    before = [part.forced for part in running]
    for part in running:
        part.forced = now
    try:
        yield
    finally:
        for part, forced in zip(running, before, strict=True):
            part.forced = forced


def advance(module: nn.Module, steps: int) -> None:
    """Count ``steps`` training steps that were replayed from a CUDA graph.

    Example:
        >>> from torchlace.backgrounds import Total
        >>> background = Total(2)
        >>> advance(background, 3)
        >>> background.steps
        3
    """
    for part in module.modules():
        if isinstance(part, Running):
            part._clock += steps
            part._kept.clear()


def _check_mapped(features: Tensor, statistics: Tensor) -> None:
    """Raise where vmap runs over samples that one background would have to learn from."""
    if not mapped(features) or mapped(statistics):
        return
    raise RuntimeError(
        "one background can't learn from samples that torch.func.vmap keeps apart: call .eval() on "
        "the head or background first, or map over stacked buffers too"
    )


def _all_reduce(tensor: Tensor) -> Tensor:
    dist.all_reduce(tensor)
    return tensor
