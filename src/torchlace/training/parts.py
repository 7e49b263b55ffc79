"""What a configuration means: the model, Fabric, the optimiser and its schedule."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._precision import evaluating
from torchlace.backgrounds import Running
from torchlace.models import Classifier
from torchlace.runs.config import TrainConfig
from torchlace.runs.run import RunError
from torchlace.training.device import PRECISIONS, OneDevice
from torchlace.training.sharding import shard


@contextmanager
def compiling(config: TrainConfig) -> Iterator[None]:
    """Say it plainly where the backbone, if it is to be compiled, can't be."""
    try:
        yield
    except RuntimeError as error:
        if not config.compile:
            raise
        from torch._dynamo.exc import TorchDynamoException

        if not isinstance(error, TorchDynamoException):
            raise
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{config.backbone_name} can't be compiled here ({reason}): start again without "
            "--compile"
        ) from error


def check_takes(model: Classifier, images: Tensor, name: str) -> None:
    """Refuse a backbone that can't take images of this size, before anything is begun."""
    try:
        with evaluating(model), torch.no_grad():
            model.embed(images)
    except (RuntimeError, AssertionError, ValueError) as error:
        height, width = images.shape[-2:]
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{name} can't take images of {width} × {height} pixels ({reason}): use a larger "
            "--image-size, --protocol paper, or another --backbone"
        ) from error


def check_settles(model: Classifier, name: str) -> None:
    """Refuse a backbone without statistics that could be taken anew, before anything is begun."""
    parts = list(model.backbone.modules())
    if any(isinstance(part, Running) for part in parts):
        raise RunError(
            "a BackgroundNorm would learn from the batches of --norm-batches too: leave out one"
        )
    norms = (part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm))
    if not any(part.track_running_stats for part in norms):
        raise RunError(f"{name} has no batch normalisation: leave out --norm-batches")


def make_fabric(config: TrainConfig) -> Any:
    """Lightning Fabric for the devices asked for, or its stand-in where one device is enough."""
    device = config.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise RunError("there is no CUDA device here: use --device cpu")
    if device == "mps" and not torch.backends.mps.is_available():
        raise RunError("there is no MPS device here: use --device cpu")
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
            f"{config.devices * config.nodes}: say --devices (on each machine) and --nodes"
        )
    if config.ema is not None and precision in ("bf16-true", "16-true"):
        raise RunError(f"--ema would be lost in the rounding of {precision}: use bf16-mixed")
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
            f"the processes of this run could not meet ({reason}): check --devices, --nodes, the "
            "address of the first machine, and that no other run uses its port"
        ) from error


def _touch(device: str) -> None:
    try:
        torch.zeros(1, device=device)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"the CUDA device can't be used now ({reason}): wait for other processes to leave it, "
            "choose another by CUDA_VISIBLE_DEVICES, or use --device cpu"
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
        raise RunError("--compile needs the whole model on every device: use --strategy ddp")
    if "deepspeed" in strategy:
        raise RunError(f"strategy {strategy} writes checkpoints of its own kind: use fsdp")
    if strategy == "fsdp":
        if config.ema is not None:
            raise RunError("--ema needs the whole model on every device: use --strategy ddp")
        if config.norm_batches:
            raise RunError(
                "--norm-batches needs the whole model on every device: use --strategy ddp"
            )
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


def make_optimizer(
    config: TrainConfig, model: nn.Module, device: torch.device, capturable: bool
) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD; one that a CUDA graph can hold where ``capturable``."""
    options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        options |= {"momentum": 0.9, "nesterov": True}
    elif capturable:
        options["capturable"] = True
    # Lightning clips no gradients that a fused optimiser unscales.
    if device.type == "cuda" and not (config.precision == "16-mixed" and config.clip):
        options["fused"] = True
    if capturable and config.schedule != "constant":
        options["lr"] = torch.tensor(config.lr, device=device)
    kinds: dict[str, Any] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "sgd": torch.optim.SGD,
    }
    optimizer: torch.optim.Optimizer = kinds[config.optimizer](model.parameters(), **options)
    return optimizer


def make_scheduler(config: TrainConfig, optimizer: Any, steps: int) -> Any:
    """The schedule of the learning rate, a step for each training step; None for a constant one."""
    total = config.epochs * steps
    if config.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    if config.schedule == "one-cycle":
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, config.lr, total_steps=total + 1, cycle_momentum=False
        )
    return None


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory(device: torch.device) -> float | None:
    """Most memory in use on a CUDA device so far, MiB."""
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
