"""One training step: eagerly, or replayed as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._torch import TorchDispatchMode, lerp_all_
from torchlace.backgrounds import Running, advance, refreshing
from torchlace.functional.targets import Targets, selected


class EagerStep:
    """Forward, loss, backward and update, through Fabric: any device, precision and strategy."""

    def __init__(
        self,
        fabric: Any,
        model: Any,
        optimizer: Any,
        augment: Callable[[Tensor, Tensor], tuple[Tensor, Targets]],
        options: dict[str, Any],
        clip: float | None,
        average: Average | None,
    ) -> None:
        self.fabric, self.model, self.optimizer = fabric, model, optimizer
        self.augment, self.options, self.clip, self.average = augment, options, clip, average
        self.total = torch.zeros((), device=fabric.device)
        self.dtype = next(model.parameters()).dtype

    def _loss(self, inputs: Tensor, targets: Targets) -> Tensor:
        weight, world = self.options.get("weight"), self.fabric.world_size
        if weight is None or world == 1:
            loss: Tensor = self.model.loss(inputs, targets, **self.options)
            return loss
        # The mean divides by the class weights of the whole batch, not of this process's share.
        mass = self.fabric.all_reduce(selected(weight, targets).sum(), reduce_op="sum")
        loss = self.model.loss(inputs, targets, reduction="sum", **self.options) * (world / mass)
        return loss

    def __call__(self, images: Tensor, labels: Tensor) -> None:
        """Learn from uint8 images; the loss is added to ``total``."""
        self.optimizer.zero_grad(set_to_none=True)
        inputs, targets = self.augment(images, labels)
        with self.fabric.autocast():
            loss = self._loss(inputs.to(self.dtype), targets)
        self.fabric.backward(loss)
        if self.clip is not None:
            self.fabric.clip_gradients(
                self.model, self.optimizer, max_norm=self.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.total += loss.detach()


class _Operation(TorchDispatchMode):
    """Remembers the last operation, so that a capture that fails can name it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.last = "the start"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.last = str(func)
        return func(*args, **(kwargs or {}))


class GraphStep:
    """The same step on one CUDA device, captured once and replayed.

    Two graphs: one in which estimated backgrounds refresh their whitening and one in which they
    don't. What the warm-up moved is put back before training starts.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        autocast: Callable[[], AbstractContextManager[Any]],
        augment: Any,
        options: dict[str, Any],
        clip: float | None,
        average: Average | None,
        images: Tensor,
        labels: Tensor,
        batch: int,
        *,
        compiled: bool = False,
    ) -> None:
        self.model, self.optimizer, self.autocast = model, optimizer, autocast
        self.augment, self.options, self.clip, self.average = augment, options, clip, average
        self.images, self.labels = images, labels
        self.chosen = torch.zeros(batch, dtype=torch.int64, device=images.device)
        self.total = torch.zeros((), device=images.device)
        self.running = [part for part in model.modules() if isinstance(part, Running)]
        # Compiled parts would step aside for a mode that looks at every operation.
        self.watched = not compiled
        self.graphs = self._capture()

    def __call__(self, chosen: Tensor) -> None:
        """Learn from the images at these positions; the loss is added to ``total``."""
        self.chosen.copy_(chosen, non_blocking=True)
        due = any(part.steps % part.refresh_every == 0 for part in self.running)
        self.graphs[due].replay()
        advance(self.model, 1)

    def _step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        images, targets = self.augment(self.images[self.chosen], self.labels[self.chosen])
        with self.autocast():
            loss = self.model.loss(images, targets, **self.options)  # type: ignore[operator]
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip, foreach=True)
        self.optimizer.step()
        if self.average is not None:
            self.average.update()
        self.total += loss.detach()

    def _capture(self) -> dict[bool, torch.cuda.CUDAGraph]:
        phases = {(part.refresh_every, part.steps % part.refresh_every) for part in self.running}
        if len(phases) > 1:
            raise RuntimeError("backgrounds that refresh at different steps can't share two graphs")
        restore = self._snapshot()
        kinds = (True, False) if self.running else (False,)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for refresh in kinds:  # both, so that nothing is left to compile while capturing
                with refreshing(self.model, refresh):
                    for _ in range(3):
                        self._step()
        torch.cuda.current_stream().wait_stream(side)
        graphs: dict[bool, torch.cuda.CUDAGraph] = {}
        pool = None
        for refresh in kinds:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.augment.generator)
            operation = _Operation()
            watching = operation if self.watched else nullcontext()
            try:
                with refreshing(self.model, refresh), torch.cuda.graph(graph, pool=pool), watching:
                    self._step()
            except RuntimeError as error:
                if not self.watched:
                    raise
                raise RuntimeError(f"at {operation.last}: {error}") from error
            graphs[refresh], pool = graph, graph.pool()
        restore()
        return graphs

    def _snapshot(self) -> Callable[[], None]:
        """A function that puts weights, statistics, counters and optimiser back as they are now."""
        tensors = [*self.model.parameters(), *self.model.buffers(), self.total]
        if self.average is not None:
            tensors += [*self.average.weights[0], *self.average.buffers[0]]
        kept = [(tensor, tensor.detach().clone()) for tensor in tensors]
        steps = [(part, part._clock.clone()) for part in self.running]
        before = {
            (parameter, name): value.clone()
            for parameter, state in self.optimizer.state.items()
            for name, value in state.items()
        }

        def restore() -> None:
            with torch.no_grad():
                for tensor, value in kept:
                    tensor.copy_(value)
                for part, clock in steps:
                    part._clock.copy_(clock)
                for parameter, state in self.optimizer.state.items():
                    for name, value in state.items():
                        if (parameter, name) in before:
                            value.copy_(before[parameter, name])
                        else:
                            value.zero_()

        return restore


class Average:
    """Exponential moving average of a model's weights, updated without leaving the device."""

    def __init__(self, model: nn.Module, average: nn.Module, decay: float) -> None:
        self.decay = decay
        pairs = list(zip(average.parameters(), model.parameters(), strict=True))
        self.weights = [[p.data for p in side] for side in zip(*pairs, strict=True)]
        both = zip(average.buffers(), model.buffers(), strict=True)
        self.buffers = [list(side) for side in zip(*both, strict=True)] or [[], []]

    def update(self) -> None:
        """Move towards the model; buffers are copied."""
        lerp_all_(self.weights[0], self.weights[1], 1 - self.decay)
        for old, new in zip(*self.buffers, strict=True):
            old.copy_(new)


def copy_clocks(model: nn.Module, average: nn.Module) -> None:
    """Give the average the step counters of the model, which live outside its buffers."""
    for old, new in zip(average.modules(), model.modules(), strict=True):
        if isinstance(old, Running) and isinstance(new, Running):
            old.set_extra_state(new.get_extra_state())
