"""Checks of settings: numbers, counts and names; nothing heavy is loaded for them."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Iterable


def check_number(
    name: str, value: float, low: float, high: float = float("inf"), *, closed: bool = False
) -> float:
    """Return ``value`` if it is finite and from ``low`` to ``high``, or raise naming ``name``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    inside = low <= value <= high if closed else low < value < high
    if not inside or math.isinf(value):
        start, end = "[" if closed else "(", "]" if closed and high < math.inf else ")"
        raise ValueError(f"{name} must lie in {start}{low:g}, {high:g}{end}, got {value}")
    return float(value)


def check_count(name: str, value: int, low: int = 1) -> int:
    """Return ``value`` if it is an integer of at least ``low``, or raise naming ``name``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}")
    return int(value)


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``, or raise with the nearest ones."""
    known = sorted(choices)
    if value in known:
        return value
    near = nearest(str(value), known)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    raise ValueError(f"unknown {name} {value!r}: {hint}known: {', '.join(known)}")


def nearest(value: str, known: Collection[str], alike: float = 0.4) -> list[str]:
    """Up to three of the ``known`` names that look most like one that is unknown.

    Example:
        >>> nearest("Cifar-10", ["cifar10", "cifar100", "svhn"])
        ['cifar10', 'cifar100']
    """
    if value.lower() == "gpu" and "cuda" in known:
        return ["cuda"]
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(value.lower(), names, n=3, cutoff=alike)
    return [names[each] for each in near]
