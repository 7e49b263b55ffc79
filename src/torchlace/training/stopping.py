"""What a run has reached, and when it stops."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchlace.runs import TrainConfig
from torchlace.runs.readers import best_epoch, check_history


class InterruptedRun(Exception):  # noqa: N818 - not an error: the checkpoint is written
    """Training was asked to stop, and its checkpoint is written."""


@dataclass
class Progress:
    """What a run has reached, and all that a checkpoint says of it."""

    history: list[dict[str, Any]] = field(default_factory=list)
    best_accuracy: float = -1.0
    best_epoch: int = 0
    best_loss: float = math.inf
    loss_epoch: int = 0
    seconds: float = 0.0

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Progress:
        """From what a checkpoint says: one epoch at least, and all that follows from its rows."""
        progress, again = cls(**values), cls(seconds=values["seconds"])
        check_history(progress.history)
        for row in progress.history:
            again.add(row)
        if not progress.history or progress != again:
            raise ValueError("its history and its best epochs disagree")
        return progress

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history)

    @property
    def best(self) -> bool:
        """Whether the last epoch is the one whose weights to use."""
        return self.best_epoch == self.epoch

    def add(self, row: dict[str, Any]) -> None:
        """An epoch is done."""
        self.history.append(row)
        self.best_epoch = best_epoch(self.history)
        self.best_accuracy = self.history[self.best_epoch - 1]["val_accuracy"]
        if row["val_loss"] < self.best_loss:
            self.best_loss, self.loss_epoch = row["val_loss"], self.epoch

    def stopped(self, config: TrainConfig) -> bool:
        """Whether training is over."""
        return self.epoch >= config.epochs or self.epoch - self.loss_epoch >= config.patience


@contextmanager
def interruptible(tell: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Let the first SIGINT wait for the end of the epoch, and tell so; the second stops at once."""
    asked = False

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        tell("stopping after this epoch; once more stops at once")

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not the main thread: nobody sends signals here
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
