"""What is told while a run is examined."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """What is told while a run is examined."""

    def message(self, text: str) -> None:
        """A line."""

    def progress(self, what: str, done: int, total: int) -> None:
        """So much of a part is done."""


class Quiet:
    """Tells nothing.

    Example:
        >>> Quiet().progress("features", 1, 10)
    """

    def message(self, text: str) -> None:
        """Nothing."""

    def progress(self, what: str, done: int, total: int) -> None:
        """Nothing."""
