"""Weights and checkpoints; nothing that comes from outside is unpickled."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from torchlace._text import setting
from torchlace.runs import Run, RunError
from torchlace.runs.seals import sealed
from torchlace.training.distributed import spread_model, spread_optimizer, whole
from torchlace.training.stopping import Progress


def save_weights(run: Run, model: nn.Module, *, write: bool) -> None:
    """Write best.safetensors, the weights to use; every process takes part, one writes."""
    state = whole(model.state_dict(), keep=write)
    if write:
        run.write_weights(state)


def checkpoint_state(
    parts: dict[str, Any], progress: dict[str, Any], *, keep: bool = True, copy: bool = False
) -> dict[str, Any]:
    """What a checkpoint holds, on the CPU; see :func:`torchlace.training.distributed.whole`."""
    state = {
        name: whole(part.state_dict(), keep=keep, copy=copy)
        for name, part in parts.items()
        if part is not None
    }
    return {**state, "progress": deepcopy(progress)}


def write_checkpoint(run: Run, state: dict[str, Any]) -> None:
    """Write last.ckpt, from which the run goes on."""
    # Through memory: torch's own writer would turn a full disk into another error.
    packed = io.BytesIO()
    torch.save(state, packed)
    run.write(run.checkpoint_path, *sealed(packed.getbuffer()))


def _keep_execution(state: dict[str, Any], optimizer: Any) -> None:
    """Where and how the optimiser computes is this process's choice, not the checkpoint's."""
    for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True):
        saved.update({k: own[k] for k in ("fused", "foreach", "capturable") if k in own})
        rate, lr = float(saved["lr"]), own["lr"]
        saved["lr"] = lr.clone().fill_(rate) if isinstance(lr, Tensor) else rate


def _lay_out(optimizer: Any) -> None:
    """Order what the optimiser keeps as the weights are here; fused ones refuse anything else."""
    inner = getattr(optimizer, "optimizer", optimizer)  # Lightning's has its own, older state
    for parameter, kept in inner.state.items():
        for name, value in kept.items():
            alike = isinstance(value, Tensor) and value.shape == parameter.shape
            if alike and value.stride() != parameter.stride():
                kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def load_checkpoint(run: Run, parts: dict[str, Any]) -> Progress:
    """Restore ``parts`` from last.ckpt; returns the progress."""
    content = run.read(run.checkpoint_path)
    try:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for name, part in parts.items():
            if name == "scaler" and name not in state:
                continue  # the run began in another precision
            if name == "optimizer":
                _keep_execution(state[name], part)
                part.load_state_dict(spread_optimizer(state[name], part))
                _lay_out(part)
            elif isinstance(part, nn.Module):
                part.load_state_dict(spread_model(state[name], part))
            elif part is not None:
                part.load_state_dict(state[name])
        return Progress.restored(state["progress"])
    except Exception as error:
        raise RunError(
            f"{run.checkpoint_path} can't be read as a checkpoint of this run "
            f"({type(error).__name__}); {setting('overwrite', True)} trains the run anew"
        ) from error


class Writer:
    """Does one piece of writing after another: at once, or in the background.

    An error of what is written in the background comes up at :meth:`wait`, or where the writer
    is left.

    Example:
        >>> written = []
        >>> with Writer(background=True) as writer:
        ...     writer.write(lambda: written.append(1))
        >>> written
        [1]
    """

    def __init__(self, *, background: bool) -> None:
        self.background = background
        self.pool = ThreadPoolExecutor(1)
        self.pending: Future[object] | None = None

    def write(self, work: Callable[[], object]) -> None:
        """Begin a piece of work, after the last one is done."""
        self.wait()
        if self.background:
            self.pending = self.pool.submit(work)
        else:
            work()

    def wait(self) -> None:
        """Until all is written."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(str(failure))
        finally:
            self.pool.shutdown()
