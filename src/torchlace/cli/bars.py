"""What ``torchlace train`` shows while it goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torchlace._text import shown_lines
from torchlace.cli.common import say

_SHORTEST_BAR = 8


def reporter(epochs: int, quiet: bool) -> Any:
    """Who is told of a training: nobody, whoever looks at a terminal, or a log."""
    return Bars(epochs) if sys.stderr.isatty() and not quiet else _Lines(quiet)


class _Lines:
    """Plain lines, for logs, or none."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet

    def message(self, text: str) -> None:
        if not self.quiet:
            say(text, err=True)

    def step(self, epoch: int, step: int, steps: int) -> None:
        pass

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        self.message("  ".join(_summary(row, epochs)))

    def close(self) -> None:
        pass


class Bars:
    """A bar that moves with the steps, and a line for every epoch, on a terminal of any width."""

    def __init__(self, epochs: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress

        from torchlace.training.together import companion

        self.progress = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            "{task.fields[left]}",
            transient=True,
            console=Console(stderr=True),
        )
        if not companion():  # of several processes, only one will be asked for a bar
            self.progress.start()
        self.task = self.progress.add_task("start", total=None, left="")
        self.clock = _Clock(epochs)
        self.shown = 0.0
        self.last: list[str] = []

    def message(self, text: str) -> None:
        """A line above the bar."""
        from rich.text import Text

        # The terminal breaks long lines, so that paths in them can be copied.
        self.progress.console.print(Text(shown_lines(text)), soft_wrap=True)

    def step(self, epoch: int, step: int, steps: int) -> None:
        """Move the bar."""
        left = self.clock.step(epoch, step, steps)
        now = time.monotonic()
        if now - self.shown > 0.1:
            self.shown = now
            self.progress.start()
            others = f" {_SHORTEST_BAR * '━'} {steps}/{steps} {left}"
            room = self.progress.console.width - len(others)
            described = _fitting([f"epoch {epoch}/{self.clock.epochs}", *self.last], room, ", ")
            self.progress.update(
                self.task, description=described, completed=step, total=steps, left=left
            )

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """A line for the epoch; the next bar tells of it too."""
        self.clock.epoch()
        self.last = [
            f"loss {row['train_loss']:.3f}",
            f"accuracy {row['val_accuracy']:.1f} %",
            f"{row['images_per_second']:,.0f} images/s",
        ]
        parts, width = _summary(row, epochs), self.progress.console.width
        if len("  ".join(parts[:3])) > width:  # the validation tells more than the training loss
            del parts[1]
        self.message(_fitting(parts, width, "  "))

    def close(self) -> None:
        """Take the bar away."""
        self.progress.stop()


class _Clock:
    """How long it will take, by the steps of this epoch and by the epoch before."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.began: tuple[float, int] | None = None
        self.last: float | None = None

    def step(self, epoch: int, step: int, steps: int) -> str:
        now = time.monotonic()
        if self.began is None:
            self.began = (now, step)
        start, first = self.began
        if step == first:
            return ""
        each = (now - start) / (step - first)
        rest = each * (steps - step)
        whole = each * steps if self.last is None else self.last
        run = rest + whole * (self.epochs - epoch)
        return f"left {_duration(rest)} (run ≤ {_duration(run)})"

    def epoch(self) -> None:
        now = time.monotonic()
        if self.began is not None:
            self.last = now - self.began[0]
        self.began = (now, 0)


def _summary(row: dict[str, Any], epochs: int) -> list[str]:
    """One epoch in the parts of a line."""
    return [
        f"epoch {row['epoch']}/{epochs}",
        f"loss {row['train_loss']:.4f}",
        f"validation loss {row['val_loss']:.4f}, accuracy {row['val_accuracy']:.2f} %",
        f"{row['images_per_second']:,.0f} images/s",
        f"{row['seconds']:.1f} s",
    ]


def _fitting(parts: Sequence[str], width: int, between: str) -> str:
    """As many of the first parts as fit on a line, one at least."""
    for count in range(len(parts), 1, -1):
        line = between.join(parts[:count])
        if len(line) <= width:
            return line
    return parts[0]


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
