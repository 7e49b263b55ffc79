"""When a background derives its whitening anew: every few steps, on a counter of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._checks import check_count
from torchlace._torch import transformed, transforming, untransformed
from torchlace.backgrounds.base import Background


class Clocked(Background):
    """A background that counts its steps and derives tensors from its statistics every few of them.

    The counter lives on the host, so that the decision to refresh waits for no device; it is saved
    as the extra state of the module.
    """

    _derived: tuple[str, ...] = ("whitening",)
    _derived_of_means: tuple[str, ...] = ()  # where only the mean is in use

    def __init__(self, *sizes: int, refresh_every: int = 10, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.refresh_every = check_count("refresh_every", refresh_every)
        if not self.has_covariance:
            self._derived = self._derived_of_means
        self._clock = torch.zeros((), dtype=torch.int64, device="cpu")
        self.forced: bool | None = None
        self._kept: dict[str, tuple[Tensor, int, torch.dtype, Tensor]] = {}

    def refresh(self) -> None:
        """Derive the whitening from the statistics now."""
        if self._derived:
            with torch.no_grad():
                self._store(self._usable())

    @property
    def steps(self) -> int:
        """Training steps seen."""
        return int(self._clock)

    def get_extra_state(self) -> Tensor:
        """The step counter."""
        return self._clock.clone()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the step counter."""
        self._clock = torch.as_tensor(state, dtype=torch.int64, device="cpu").clone()

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


@contextmanager
def refreshing(module: nn.Module, now: bool) -> Iterator[None]:
    """A block in which every estimated background of ``module`` refreshes in each step, or none.

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
    running = [part for part in module.modules() if isinstance(part, Clocked)]
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
        if isinstance(part, Clocked):
            part._clock += steps
            part._kept.clear()
