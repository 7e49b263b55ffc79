"""What is told while training goes on."""

from __future__ import annotations

from typing import Any, Protocol


class Reporter(Protocol):
    """What is told while training goes on."""

    def message(self, text: str) -> None:
        """A line."""

    def step(self, epoch: int, step: int, steps: int) -> None:
        """A training step is done."""

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """An epoch is done."""


class Silent:
    """Tells nothing."""

    def message(self, text: str) -> None:
        """Nothing."""

    def step(self, epoch: int, step: int, steps: int) -> None:
        """Nothing."""

    def epoch(self, row: dict[str, Any], epochs: int) -> None:
        """Nothing."""
