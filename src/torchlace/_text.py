"""Words of messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "run"), counted(2_000, "image")
        ('1 run', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
