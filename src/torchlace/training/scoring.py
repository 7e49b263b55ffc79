"""How good a network is: its scores of images, and what a finished run says."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from torchlace import heads
from torchlace.evaluation.measures import AT_THE_END
from torchlace.evaluation.scores import calibration_scores, classification_scores
from torchlace.models.predict import BATCH, predict
from torchlace.runs.run import versions
from torchlace.training.inputs import Batches, Inputs


class Scoring:
    """Evaluation of a run's networks on its images."""

    def __init__(self, inputs: Inputs, fabric: Any, *, compiled: bool) -> None:
        self.inputs, self.fabric, self.compiled = inputs, fabric, compiled
        self.device: torch.device = fabric.device

    def logits(
        self, model: nn.Module, batches: Batches, *, fast: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Logits of all images, and their labels; ``fast`` in the precision of training."""
        with self._eagerly():
            found = predict(
                model,
                batches.evaluation(max(self.inputs.batch, BATCH) if fast else BATCH),
                self.inputs.prepare,
                autocast=self.fabric.autocast if fast else None,
            )
        return found.logits, batches.labels

    def settle(self, model: nn.Module, order: Tensor) -> None:
        """Give batch normalisation the statistics of the weights as they are, from some batches.

        Its running averages are of the last ten batches or so, and of weights that have moved on.
        """
        dtype = next(model.parameters()).dtype
        batches = self.inputs.fit.training(order)
        images = (self.inputs.augment(*batch)[0].to(dtype) for batch in batches)
        with self.fabric.autocast(), self._eagerly():
            update_bn(images, model.backbone)  # type: ignore[arg-type]

    def calibrate(self, model: nn.Module) -> float:
        """Fit the head's temperature on the held-out images; the accuracy there, in percent."""
        logits, labels = self.logits(model, self.inputs.held)
        head: heads.Head = model.head  # type: ignore[assignment]
        head.temperature.copy_(heads.fit_temperature(logits, labels))
        return accuracy(logits, labels)

    def result(
        self, model: nn.Module, history: list[dict[str, Any]], chosen: int, held: float
    ) -> dict[str, Any]:
        """What result.json says, the test images looked at once.

        Args:
            model: with the weights of the chosen epoch.
            history: the rows of all epochs.
            chosen: the epoch.
            held: accuracy on the held-out images, in percent.
        """
        temperature = float(model.head.temperature)  # type: ignore[union-attr, arg-type]
        logits, labels = self.logits(model, self.inputs.test)
        right = (logits.argmax(1) == labels).cpu().numpy()
        scores = classification_scores(logits, labels, temperature)
        calibration = calibration_scores(logits, labels, temperature)
        return {
            **{f"test_{name}": scores[name] for name in AT_THE_END},
            **{name: calibration[name] for name in ("ece", "calibrated_ece")},
            "val_accuracy": held,
            "temperature": temperature,
            "epochs": len(history),
            "best_epoch": chosen,
            "seconds": round(history[-1]["seconds"], 2),
            "parameters": sum(p.numel() for p in model.parameters()),
            "device": device_name(self.device),
            "peak_memory_mib": peak_memory(self.device),
            "test_images": len(right),
            "test_right": base64.b64encode(np.packbits(right).tobytes()).decode(),
            "data_digest": self.inputs.data.digest,
            "versions": versions(),
        }

    def _eagerly(self) -> AbstractContextManager[Any]:
        """Without what was compiled: for some batches of several sizes, more would not pay."""
        if not self.compiled:
            return nullcontext()
        stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return stance


@contextmanager
def in_single_precision(model: nn.Module) -> Iterator[None]:
    """A block with weights of half precision in fp32, as whoever loads the run has them."""
    dtype = next(model.parameters()).dtype
    narrow = dtype in (torch.float16, torch.bfloat16)
    if narrow:
        model.float()
    try:
        yield
    finally:
        if narrow:
            model.to(dtype)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """In percent.

    Example:
        >>> accuracy(torch.eye(4), torch.tensor([0, 1, 2, 2]))
        75.0
    """
    return 100 * (logits.argmax(1) == labels).double().mean().item()


def device_name(device: torch.device) -> str:
    """What the device calls itself."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def peak_memory(device: torch.device) -> float | None:
    """Most memory in use on a CUDA device so far, MiB."""
    if device.type != "cuda":
        return None
    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1)
