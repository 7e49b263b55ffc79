"""The optimiser, the schedule of its learning rate, and the average of the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from torchlace._torch import lerp_all_
from torchlace.backgrounds import Running
from torchlace.runs import TrainConfig


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
