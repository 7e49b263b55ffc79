"""One device without Lightning Fabric, which takes seconds to import."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")
PRECISIONS = ("32-true", "bf16-mixed")


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
