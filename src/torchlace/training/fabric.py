"""Where a run computes: Lightning Fabric, or its stand-in for one device."""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchlace._device import named_device
from torchlace._text import setting
from torchlace.runs import RunError, TrainConfig
from torchlace.training.distributed import shard

T = TypeVar("T")
PRECISIONS = ("32-true", "bf16-mixed")


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
    if alone and precision in PRECISIONS and device in ("cpu", "cuda", "mps"):
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
    if strategy == "fsdp" and config.compile:
        raise RunError(_needs_whole("compile"))
    if "deepspeed" in strategy:
        raise RunError(f"strategy {strategy} writes checkpoints of its own kind: use fsdp")
    if strategy == "fsdp":
        if config.ema is not None:
            raise RunError(_needs_whole("ema"))
        if config.norm_batches:
            raise RunError(_needs_whole("norm_batches"))
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


def _needs_whole(name: str) -> str:
    ddp = setting("strategy", "ddp")
    return f"{setting(name)} needs the whole model on every device: use {ddp}"


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
        """Nothing: this process is all there is."""

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        if self.precision == "bf16-mixed":
            return torch.autocast(self.device.type, torch.bfloat16)
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss."""
        loss.backward()

    def clip_gradients(
        self, model: nn.Module, optimizer: Any, *, max_norm: float, error_if_nonfinite: bool
    ) -> None:
        """Scale the gradient to at most this norm."""
        nn.utils.clip_grad_norm_(
            model.parameters(), max_norm, error_if_nonfinite=error_if_nonfinite
        )

    def all_reduce(self, value: Tensor, reduce_op: str = "mean") -> Tensor:
        """The value."""
        return value

    def broadcast(self, value: T) -> T:
        """The value."""
        return value

    def barrier(self) -> None:
        """Nothing."""
