"""How commands show progress: bars for whoever looks at a terminal, lines for a log."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from torchlace._reporter import Reporter
from torchlace._text import shown, shown_lines
from torchlace.cli.common import say

_SHORTEST_BAR = 8
# How wide lines of a log may be.
_LOG = 80


@contextmanager
def reporting(*, epochs: int | None = None, quiet: bool = False) -> Iterator[Reporter]:
    """A reporter of what a command does: bars on a terminal, lines elsewhere, nothing if quiet.

    Args:
        epochs: of the training, if the command trains.
        quiet: whether nothing is shown.
    """
    if quiet:
        yield Reporter()
    elif not sys.stderr.isatty():
        yield _Lines()
    else:
        bars = Bars(epochs)
        try:
            yield bars
        finally:
            bars.close()


class _Lines(Reporter):
    """Prints plain lines, for logs."""

    def message(self, text: str) -> None:
        say(text, err=True)

    def begin(self, epochs: int, choices: Callable[[], dict[str, str]]) -> None:
        if said := choices():
            self.message(_aligned(said, _LOG))

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        self.message("  ".join(_summary(row, epochs)))


class Bars(Reporter):
    """Draws a bar for each piece of work, and prints a line for each epoch of a training."""

    def __init__(self, epochs: int | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            transient=True,
            console=Console(stderr=True),
        )
        self.tasks: dict[str, Any] = {}
        self.clock = _Clock(epochs or 1)
        self.shown = 0.0
        self.last: list[str] = []
        if epochs is not None:
            self.tasks["training"] = self.bars.add_task("start", total=None, left="")
            from torchlace.training.distributed import companion

            if companion():  # of several processes, only one will be asked for a bar
                return
        self.bars.start()

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        from rich.text import Text

        # The terminal breaks long lines, so that paths in them can be copied.
        self.bars.console.print(Text(shown_lines(text)), soft_wrap=True)

    def begin(self, epochs: int, choices: Callable[[], dict[str, str]]) -> None:
        """Print what the training begins with."""
        self.clock.epochs = epochs
        if said := choices():
            self.message(_aligned(said, self.bars.console.width))

    def progress(self, what: str, done: int, total: int) -> None:
        """Move the bar of a piece of work."""
        if what not in self.tasks:
            self.tasks[what] = self.bars.add_task(shown(what), total=total, left="")
        task = self.bars.tasks[self.tasks[what]]
        left = task.time_remaining
        left = "" if left is None else _duration(left)
        self.bars.update(self.tasks[what], completed=done, total=total, left=left)

    def step(self, epoch: int, step: int, steps: int) -> None:
        """Move the bar of the training."""
        left = self.clock.step(epoch, step, steps)
        now = time.monotonic()
        if now - self.shown > 0.1:
            self.shown = now
            self.bars.start()
            others = f" {_SHORTEST_BAR * '━'} {steps}/{steps} {left}"
            room = self.bars.console.width - len(others)
            described = _fitting([f"epoch {epoch}/{self.clock.epochs}", *self.last], room, ", ")
            self.bars.update(
                self.tasks["training"],
                description=described,
                completed=step,
                total=steps,
                left=left,
            )

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Print a line for the epoch; the next bar tells of it too."""
        self.clock.epoch()
        self.last = [
            f"loss {row['train_loss']:.3f}",
            f"accuracy {row['val_accuracy']:.1f} %",
            f"{row['images_per_second']:,.0f} images/s",
        ]
        parts, width = _summary(row, epochs), self.bars.console.width
        if len("  ".join(parts[:3])) > width:  # the validation tells more than the training loss
            del parts[1]
        self.message(_fitting(parts, width, "  "))

    def close(self) -> None:
        """Take the bars away."""
        self.bars.stop()


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


def _aligned(rows: Mapping[str, str], width: int) -> str:
    """Names and what is said of them, side by side, in lines of at most this width."""
    column = max(map(len, rows)) + 2
    lines = ["training with"]
    for name, said in rows.items():
        parts = textwrap.wrap(said, max(width - column - 2, 20), break_on_hyphens=False)
        heads = [name, *[""] * len(parts)]
        lines += [f"{head:{column}}{part}" for head, part in zip(heads, parts, strict=False)]
    return "\n  ".join(lines)


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
