"""Several processes of one run: they share its folder, spread its model and end together."""

from __future__ import annotations

import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._text import setting
from torchlace._torch import default_store
from torchlace.runs import Run, RunError
from torchlace.runs.files import shared_mark
from torchlace.training.stopping import InterruptedRun

_POLL, _GRACE, _PATIENCE = 0.5, 3.0, 5.0
_FAILED, _LEFT = "torchlace/failed", "torchlace/left"


def companion() -> bool:
    """Whether torchrun, SLURM or Lightning started this process as one of several."""
    return any(name in os.environ for name in ("LOCAL_RANK", "SLURM_PROCID"))


class Together:
    """The processes of a run, as one of them sees the others.

    Attributes:
        last_words: called before this process is ended for another's failure.
    """

    def __init__(self, fabric: Any) -> None:
        self.first, self.world = fabric.global_rank == 0, fabric.world_size
        self.store: Any = default_store() if self.world > 1 else None
        self.over = threading.Event()
        self.last_words: Callable[[], object] = lambda: None

    def watch(self) -> None:
        """End this process soon after another has failed, whatever it waits for."""
        # Another thread may wait inside the store; before torch 2.8 it has no clones.
        store = self.store.clone() if hasattr(self.store, "clone") else self.store
        while not self.over.wait(_POLL):
            try:
                failed = store.check([_FAILED])
            except RuntimeError:  # with the first process the store is gone
                failed = True
            # A collective operation may notice by itself, and the process then ends in order.
            if failed and not self.over.wait(_GRACE):
                try:
                    self.last_words()
                    self.leave(store)
                finally:
                    os._exit(1)

    def claim(self) -> bool:
        """Whether this process is the first that fails."""
        try:
            return bool(self.store.add(_FAILED, 1) == 1)
        except RuntimeError:
            return False

    def leave(self, store: Any) -> None:
        """Wait until all others have noticed the failure: launchers kill them with the first."""
        limit = time.monotonic() + _GRACE + _PATIENCE
        try:
            gone = store.add(_LEFT, 1)
            while gone < self.world and time.monotonic() < limit:
                time.sleep(0.05)
                gone = store.add(_LEFT, 0)
        except RuntimeError:  # with the first process the store is gone
            return
        if self.first:  # it keeps the store, and torch complains at length if that vanishes
            time.sleep(0.3)


@contextmanager
def together(fabric: Any) -> Iterator[Together]:
    """A block that fails in all processes if it fails in one, within seconds.

    The first process that fails raises its error; the others, which may wait for it in a
    collective operation for half an hour, end without a word. Only the first rank warns.
    """
    company = Together(fabric)
    if company.world == 1:
        yield company
        return
    threading.Thread(target=company.watch, daemon=True).start()
    with warnings.catch_warnings():
        if not company.first:
            warnings.simplefilter("ignore")
        try:
            yield company
        except InterruptedRun:
            company.over.set()
            if not company.first:
                raise SystemExit(130) from None
            raise
        except BaseException as error:
            company.over.set()
            told = not company.claim()
            if not told and _lost(error):
                raise RunError(
                    "another process of this run has ended without a word, perhaps for want of "
                    "memory; the same command goes on after the last complete epoch"
                ) from error
            company.leave(company.store)
            if told:
                raise SystemExit(1) from None
            raise
        company.over.set()
        # The first process keeps the store that the others watch.
        fabric.barrier()


def check_shared(run: Run, fabric: Any) -> None:
    """Refuse a folder that is not the same for all processes, as on machines that share no disk."""
    if fabric.world_size == 1:
        return
    token = run.path / shared_mark(fabric.broadcast(uuid.uuid4().hex))
    if fabric.global_rank == 0:
        token.touch()
    fabric.barrier()
    blind = torch.tensor(float(not _appears(token)), device=fabric.device)
    blind = fabric.all_reduce(blind, reduce_op="sum")
    if fabric.global_rank == 0:
        token.unlink()
    if blind.item():
        raise RunError(
            f"{run.path.absolute()} is not the same folder for all {fabric.world_size} processes: "
            f"{blind.item():.0f} of them can't see what the first writes there. Give "
            f"{setting('path')} a path that means one folder, shared by all machines"
        )


def _appears(path: Any) -> bool:
    """Whether a file is there; a network's file system may take a moment to show it."""
    limit = time.monotonic() + _PATIENCE
    while not path.exists():
        if time.monotonic() > limit:
            return False
        time.sleep(0.1)
    return True


def _lost(error: BaseException) -> bool:
    """Whether it says that a connection to another process broke."""
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("Connection closed by peer", "Connection reset by peer")
    )


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
