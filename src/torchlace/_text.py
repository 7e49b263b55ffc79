"""Words of messages."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> counted(1, "run"), counted(2_000, "image")
        ('1 run', '2,000 images')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[object]) -> str:
    """The first five of many.

    Example:
        >>> listed(["cat", "dog"]), listed(range(7))
        ('cat, dog', '0, 1, 2, 3, 4 and 2 more')
    """
    shown = ", ".join(map(str, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
