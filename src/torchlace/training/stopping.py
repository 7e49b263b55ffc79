"""What a run has reached, and when it is over."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from torchlace._reporter import Reporter
from torchlace._text import setting
from torchlace.runs import Run, RunError, TrainConfig
from torchlace.runs.readers import best_epoch, check_history


class InterruptedRun(Exception):  # noqa: N818 - not an error: the checkpoint is written
    """Training was asked to stop, and its checkpoint is written."""


@dataclass
class Progress:
    """The epochs of a run so far and the best of them, as a checkpoint keeps them."""

    history: list[dict[str, Any]] = field(default_factory=list)
    best_accuracy: float = -1.0
    best_epoch: int = 0
    best_loss: float = math.inf
    loss_epoch: int = 0
    seconds: float = 0.0

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Progress:
        """Read it from a checkpoint; a ValueError where its parts disagree."""
        progress, again = cls(**values), cls(seconds=values["seconds"])
        check_history(progress.history)
        for row in progress.history:
            again.add(row)
        if not progress.history or progress != again:
            raise ValueError("its history and its best epochs disagree")
        return progress

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history)

    def chosen(self, config: TrainConfig) -> int:
        """The epoch whose weights to use, as far as it can be told by now; 0 if it can't."""
        if config.weights == "last":
            return self.epoch if self.stopped(config) else 0
        return self.best_epoch

    def add(self, row: dict[str, Any]) -> None:
        """Add the row of an epoch that is done."""
        self.history.append(row)
        self.best_epoch = best_epoch(self.history)
        self.best_accuracy = self.history[self.best_epoch - 1]["val_accuracy"]
        if row["val_loss"] < self.best_loss:
            self.best_loss, self.loss_epoch = row["val_loss"], self.epoch

    def stopped(self, config: TrainConfig) -> bool:
        """Whether training is over."""
        return self.epoch >= config.epochs or self.epoch - self.loss_epoch >= config.patience


def check_loss(which: str, loss: float, epoch: int, config: TrainConfig) -> None:
    """Raise where training has diverged."""
    if math.isfinite(loss):
        return
    kept = f"; the checkpoint of epoch {epoch - 1} is intact" if epoch > 1 else ""
    raise RunError(
        f"the {which} loss became {loss} in epoch {epoch}{kept}. Lower the learning rate (now "
        f"{config.lr:g}), clip gradients ({setting('clip', 1)}) or use "
        f"{setting('precision', '32-true')}"
    )


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


def is_finished(run: Run, config: TrainConfig, reporter: Reporter, overwrite: bool) -> bool:
    """Whether there is nothing to do; an error where the folder can't hold this run."""
    make_folder(run)
    if overwrite:
        return False
    if run.config_path.exists():
        run.require_imports()
        differences = run.config().differences(config)
        if differences:
            listed = ", ".join(f"{n}: {old!r} → {new!r}" for n, (old, new) in differences.items())
            raise RunError(
                f"{run.path} was started with other settings ({listed}); choose another "
                f"{setting('path')}, or replace it with {setting('overwrite', True)}"
            )
    elif run.begun:
        run.check_there()
    if run.finished:
        anew = setting("overwrite", True)
        reporter.message(f"{run.path} is finished already; {anew} trains it anew")
    return run.finished


def make_folder(run: Run) -> None:
    """Make a run's folder, or say why there can be none."""
    if run.path.exists() and not run.path.is_dir():
        raise RunError(f"{run.path} is a file; {setting('path')} needs a folder")
    try:
        run.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{run.path} can't be created: {error.strerror}") from error


@contextmanager
def leaving_nothing(run: Run) -> Iterator[None]:
    """What could not even begin leaves no folder behind."""
    try:
        yield
    except BaseException:
        with suppress(OSError):  # there is something in it
            run.path.rmdir()
        raise
