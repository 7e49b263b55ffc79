"""Weights and checkpoints, also of models spread over devices; nothing in them is executed."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn

from torchlace._text import setting
from torchlace.runs import Run, RunError
from torchlace.runs.seals import sealed
from torchlace.training.stopping import Progress


def save_weights(run: Run, model: nn.Module, *, write: bool) -> None:
    """Write best.safetensors, the weights to use; every process takes part, one writes."""
    state = whole(model.state_dict(), keep=write)
    if write:
        run.write_weights(state)


def checkpoint_state(
    parts: dict[str, Any], progress: dict[str, Any], *, keep: bool = True, copy: bool = False
) -> dict[str, Any]:
    """What a checkpoint holds, on the CPU; see :func:`whole`."""
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
    """Keep how this optimiser computes (fused, foreach, capturable), whatever the saved one did."""
    for saved, own in zip(state["param_groups"], optimizer.param_groups, strict=True):
        saved.update({k: own[k] for k in ("fused", "foreach", "capturable") if k in own})
        rate, lr = float(saved["lr"]), own["lr"]
        saved["lr"] = lr.clone().fill_(rate) if isinstance(lr, Tensor) else rate


def _lay_out(optimizer: Any) -> None:
    """Give the optimiser's state the strides of the weights: fused ones refuse anything else."""
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
        """Start a piece of work when the one before is done."""
        self.wait()
        if self.background:
            self.pending = self.pool.submit(work)
        else:
            work()

    def wait(self) -> None:
        """Wait until all is written."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(str(failure))
        finally:
            self.pool.shutdown()


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Spread the parameters of a classifier over the processes of a mesh.

    The parts of the backbone gather their parameters when they are called. The head's belong to
    the model as a whole, because a loss is not a call of the head.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = mesh["data_parallel"]
    for part in model.backbone.network.children():  # type: ignore[union-attr]
        if any(True for _ in part.parameters()) and type(part).forward is not nn.Module.forward:
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for method in ("loss", "outputs"):
        register_fsdp_forward_method(model, method)
    return model


def whole(value: Any, *, keep: bool = True, copy: bool = False) -> Any:
    """A state on the CPU, with every spread tensor put together; every process must ask for it.

    One tensor at a time, so that no device ever holds a second model. Processes that don't
    ``keep`` the state help to put it together and get None for every tensor. ``copy`` makes sure
    that nothing in it changes when training goes on.

    Example:
        >>> whole({"weight": torch.ones(2), "steps": [3]})
        {'weight': tensor([1., 1.]), 'steps': [3]}
    """
    if isinstance(value, dict):
        return {name: whole(each, keep=keep, copy=copy) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(whole(each, keep=keep, copy=copy) for each in value)
    if not isinstance(value, Tensor):
        return value
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.detach().to("cpu", copy=copy) if keep else None


def like(value: Tensor, own: Any) -> Tensor:
    """This process's part of a whole tensor, where ``own`` is spread and of its shape."""
    if not hasattr(own, "device_mesh") or value.shape != own.shape:
        return value
    from torch.distributed.tensor import DTensor

    mesh, (placement,) = own.device_mesh, own.placements
    parts, rank = value.chunk(mesh.size(), placement.dim), mesh.get_local_rank()
    mine = parts[rank] if rank < len(parts) else value.narrow(placement.dim, 0, 0)
    # A copy: a part that is a view would keep the whole.
    mine = mine.to(own.device, copy=True)
    return DTensor.from_local(
        mine, mesh, (placement,), run_check=False, shape=own.shape, stride=own.stride()
    )


def spread_model(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The state of a whole model, for ``model`` to load."""
    own = model.state_dict()
    return {
        name: like(value, own[name]) if torch.is_tensor(value) and name in own else value
        for name, value in state.items()
    }


def spread_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimiser of a whole model, for ``optimizer`` to load."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moved = {
        number: {
            name: like(value, parameters[number]) if torch.is_tensor(value) else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": moved}
