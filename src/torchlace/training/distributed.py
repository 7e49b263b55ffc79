"""Where a run computes: on one device, or in several processes that end together."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchlace._text import setting
from torchlace._torch import default_store, named_device
from torchlace.runs import Run, RunError, TrainConfig
from torchlace.runs.files import shared_mark
from torchlace.training.checkpoint import shard
from torchlace.training.stopping import InterruptedRun

T = TypeVar("T")
_POLL, _GRACE, _PATIENCE = 0.5, 3.0, 5.0
_FAILED, _LEFT = "torchlace/failed", "torchlace/left"


def make_fabric(config: TrainConfig) -> Any:
    """Lightning Fabric for the devices asked for, or its stand-in where one device is enough."""
    try:
        device = named_device(config.device).type
    except ValueError as error:
        raise RunError(str(error)) from None
    precision = config.precision
    if precision == "auto":
        precision = "bf16-mixed" if device == "cuda" else "32-true"
    if device == "cuda":
        torch.backends.cudnn.benchmark = True
        _touch(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > config.devices * config.nodes:
        raise RunError(
            f"{world} processes were started for one run, which has "
            f"{config.devices * config.nodes}: say {setting('devices')} (on each "
            f"machine) and {setting('nodes')}"
        )
    if config.ema is not None and precision in ("bf16-true", "16-true"):
        raise RunError(
            f"{setting('ema')} would be lost in the rounding of {precision}: use bf16-mixed"
        )
    alone = config.devices == config.nodes == 1 and config.strategy == "auto"
    if alone and precision in ("32-true", "bf16-mixed") and device in ("cpu", "cuda", "mps"):
        return OneDevice(
            torch.device(device, 0) if device != "cpu" else torch.device(device), precision
        )
    return _lightning(config, device, precision)


def launch(fabric: Any) -> None:
    """Start the other processes, or meet them."""
    try:
        fabric.launch()
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"the processes of this run could not meet ({reason}): check {setting('devices')}, "
            f"{setting('nodes')}, the "
            "address of the first machine, and that no other run uses its port"
        ) from error


def _touch(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"the CUDA device can't be used now ({reason}): wait for other processes to leave it, "
            f"choose another by CUDA_VISIBLE_DEVICES, or use {setting('device', 'cpu')}"
        ) from error


def _lightning(config: TrainConfig, device: str, precision: str) -> Any:
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
    except ImportError as error:
        raise ImportError(
            "training on several devices, or in this precision, needs Lightning: "
            "pip install 'torchlace[train]'"
        ) from error
    for name in ("lightning.fabric", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    strategy: Any = config.strategy
    if "deepspeed" in strategy:
        raise RunError(f"strategy {strategy} writes checkpoints of its own kind: use fsdp")
    if strategy == "fsdp":
        for name in ("compile", "ema", "norm_batches"):
            if getattr(config, name) not in (None, 0):
                ddp = setting("strategy", "ddp")
                raise RunError(f"{setting(name)} needs the whole model on every device: use {ddp}")
        strategy = ModelParallelStrategy(
            shard, data_parallel_size=config.devices * config.nodes, tensor_parallel_size=1
        )
    try:
        return Fabric(
            accelerator=device,
            devices=config.devices,
            num_nodes=config.nodes,
            strategy=strategy,
            precision=precision,  # type: ignore[arg-type]
        )
    except (RuntimeError, ValueError) as error:
        raise RunError(
            f"device {device}, strategy {config.strategy} and precision {precision} don't go "
            f"together here: {error}"
        ) from error


class OneDevice:
    """The part of Fabric that training uses, for one process on one device.

    Example:
        >>> place = OneDevice(torch.device("cpu"), "32-true")
        >>> place.world_size, place.all_reduce(torch.tensor(3.0)).item()
        (1, 3.0)
    """

    global_rank = 0
    world_size = 1

    def __init__(self, device: torch.device, precision: str) -> None:
        self.device, self.precision = device, precision

    def launch(self) -> None:
        """Do nothing: there are no other processes to start."""

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which a forward pass runs at this precision."""
        if self.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the loss."""
        loss.backward()

    def clip_gradients(
        self, model: nn.Module, optimizer: Any, *, max_norm: float, error_if_nonfinite: bool
    ) -> None:
        """Scale the gradient to at most this norm."""
        nn.utils.clip_grad_norm_(
            model.parameters(), max_norm, error_if_nonfinite=error_if_nonfinite
        )

    def all_reduce(self, value: Tensor, reduce_op: str = "mean") -> Tensor:
        """Return the value: there is nothing to add up."""
        return value

    def broadcast(self, value: T) -> T:
        """Return the value."""
        return value

    def barrier(self) -> None:
        """Do nothing: there is nobody to wait for."""


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
