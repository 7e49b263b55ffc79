"""Training an embedding and its head by Adam, a batch at a time."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlace._precision import evaluating
from torchlace.estimators.samples import Samples
from torchlace.heads import Head


class Settings(NamedTuple):
    """How to train."""

    learning_rate: float
    alpha: float
    """Weight decay."""
    batch_size: int
    max_iter: int
    """Epochs at most."""
    tol: float
    """What counts as an improvement of the loss."""
    patience: int
    """Epochs without an improvement, after which training has converged."""


class Trainer:
    """An embedding, its head and their optimiser."""

    def __init__(
        self, embedding: nn.Module, head: Head, settings: Settings, generator: torch.Generator
    ) -> None:
        self.parts = nn.ModuleList([embedding, head])
        self.embedding, self.head = embedding, head
        self.settings = settings
        self.generator = generator
        self.optimizer = torch.optim.AdamW(
            self.parts.parameters(), lr=settings.learning_rate, weight_decay=settings.alpha
        )

    def fit(
        self, samples: Samples, held: Samples | None, report: Callable[[str], None]
    ) -> tuple[int, bool]:
        """Train until the loss stops falling; the epochs that took, and whether it did.

        Where there are samples held out, their loss decides, and the weights with which it was
        lowest stay.
        """
        best, since, weights = math.inf, 0, self.parts.state_dict()
        for epoch in range(1, self.settings.max_iter + 1):
            loss = self.epoch(samples)
            text = f"epoch {epoch}: training loss {loss:.4f}"
            if held is not None:
                loss = self.validation_loss(held)
                text += f", validation loss {loss:.4f}"
            report(text)
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss is {loss} after epoch {epoch}: training diverged; lower "
                    "learning_rate, or look at the features"
                )
            since = 0 if loss < best - self.settings.tol else since + 1
            if loss < best:
                best = loss
                if held is not None:
                    weights = copy.deepcopy(self.parts.state_dict())
            if since >= self.settings.patience:
                break
        if held is not None:
            self.parts.load_state_dict(weights)
        return epoch, since >= self.settings.patience

    def epoch(self, samples: Samples) -> float:
        """One pass over the samples in random order; their mean loss."""
        self.parts.train()
        device = samples.features.device
        order = torch.randperm(len(samples.features), generator=self.generator).to(device)
        level, total = samples.weights.mean(), samples.features.new_zeros(())
        for rows in order.tensor_split(math.ceil(len(order) / self.settings.batch_size)):
            batch = samples.take(rows)
            losses = self.head.loss(self.embedding(batch.features), batch.targets, reduction="none")
            loss = (losses * batch.weights).mean() / level
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            total += loss.detach() * len(rows)
        return float(total / len(order))

    def validation_loss(self, held: Samples) -> float:
        """The cross-entropy of the logits, without margins or auxiliary terms."""
        losses = F.cross_entropy(self.logits(held), held.targets, reduction="none")
        return float((losses * held.weights).sum() / held.weights.sum())

    def logits(self, samples: Samples) -> Tensor:
        """What the samples score, (N, C)."""
        with evaluating(self.parts), torch.no_grad():
            logits: Tensor = self.head(self.embedding(samples.features))
        return logits

    def state(self) -> dict[str, Any]:
        """The optimiser's state, on the CPU."""
        state = self.optimizer.state_dict()
        state["state"] = {
            index: {name: value.cpu() for name, value in parameter.items()}
            for index, parameter in state["state"].items()
        }
        return state

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on from :meth:`state`, with the settings of now."""
        if state is not None:
            groups = self.optimizer.state_dict()["param_groups"]
            # Adam changes what it is given, which is still that of the model before.
            own = copy.deepcopy(state["state"])
            self.optimizer.load_state_dict({"state": own, "param_groups": groups})
