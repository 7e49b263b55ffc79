"""Checks of settings: numbers, counts, names and options; nothing heavy is loaded for them."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
from collections.abc import Collection, Iterable, Sequence


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
    """Return ``value`` if it is one of ``choices``, or raise with what it may have meant."""
    known = sorted(choices)
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}: {suggestion(str(value), known)}")
    return value


def check_options(kind: type, given: Iterable[str]) -> None:
    """Raise a TypeError unless a class takes all of the ``given`` options."""
    known = option_names(kind)
    for name in given:
        try:
            check_choice(f"option of {kind.__name__}", name, known)
        except ValueError as error:
            raise TypeError(str(error)) from None


def option_names(kind: type) -> list[str]:
    """The keyword options that a class takes, those that it passes on to its bases included.

    A class names what it settles itself, though its bases ask for it, in ``_settled``.

    Example:
        >>> from torchlace.heads import NormFace
        >>> option_names(NormFace)
        ['chunk', 'device', 'dtype', 'scale']
    """
    found: set[str] = set()
    for each in kind.__mro__:
        if "__init__" not in vars(each):
            continue
        parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
        found |= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return sorted(found - set(getattr(kind, "_settled", ())))


def suggestion(value: str, known: Collection[str], near: Sequence[str] = ()) -> str:
    """What to use instead of an unknown name: the names that are near it, or else all there are.

    Example:
        >>> suggestion("lase", ["lace", "softmax"]), suggestion("tree", ["lace", "softmax"])
        ("did you mean 'lace'?", 'known: lace, softmax')
    """
    near = near or nearest(value, known)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known: {', '.join(known)}"


def nearest(value: str, known: Collection[str]) -> list[str]:
    """Up to three of the ``known`` names that look most like one that is unknown.

    Example:
        >>> nearest("Cifar-10", ["cifar10", "cifar100", "svhn"])
        ['cifar10', 'cifar100']
    """
    if value.lower() == "gpu" and "cuda" in known:
        return ["cuda"]
    names = {name.lower(): name for name in known}
    return [names[each] for each in difflib.get_close_matches(value.lower(), names)]
