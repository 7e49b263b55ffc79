"""Who is told of progress, by everything that takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Reporter:
    """Told of progress by training, evaluation, reports and grids; this one does nothing with it.

    Subclasses override what they want to show.

    Example:
        >>> class Lines(Reporter):
        ...     def message(self, text):
        ...         print(text)
        >>> Lines().message("resuming runs/demo after epoch 3")
        resuming runs/demo after epoch 3
        >>> Lines().progress("features", 1, 10)
    """

    def message(self, text: str) -> None:
        """Take a line for the user to read."""

    def begin(self, epochs: int, choices: Callable[[], dict[str, str]]) -> None:
        """Take note that a training of so many epochs is about to begin.

        ``choices()`` says with which images, network and device, and how long it will take: a name
        and a few words for each; nothing of a run that goes on. It measures the time, so that who
        shows nothing doesn't wait.
        """

    def progress(self, what: str, done: int, total: int) -> None:
        """Take note that ``done`` of ``total`` parts of a piece of work are done."""

    def step(self, epoch: int, step: int, steps: int) -> None:
        """Take note that a training step of an epoch is done."""

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Take note that an epoch is done, with its row of metrics.csv."""
