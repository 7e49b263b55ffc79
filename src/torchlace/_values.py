"""Settings: their values checked, and declared as fields; nothing heavy is loaded for them."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import numbers
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any


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
    for name in given:
        try:
            check_choice(f"option of {kind.__name__}", name, option_names(kind))
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


def option(
    default: Any,
    says: str,
    group: str,
    *,
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float = float("inf"),
    closed: bool = False,
    most: float = float("inf"),
    shown: str | None = None,
) -> Any:
    """Declare a setting: its default, the values it may have, and its line of help.

    Args:
        default: value unless another is given; None for what may be left open.
        says: what it is, in a line.
        group: below which heading help texts list it.
        choices: its values, where there are a few.
        low: the smallest value; numbers that are not whole must lie above it unless ``closed``.
        high: numbers that are not whole must lie below it, unless ``closed``.
        closed: whether ``low`` and ``high`` are values too.
        most: beyond this, what computes with it overflows or never ends.
        shown: how help texts call the default, where its value does not say enough.
    """
    rules: dict[str, Any] = {"says": says, "group": group, "choices": choices, "shown": shown}
    rules |= {"low": low, "high": high, "closed": closed, "most": most}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=rules)
    return dataclasses.field(default=default, metadata=rules)


def check_option(each: dataclasses.Field[Any], value: Any) -> None:
    """Raise unless a setting that :func:`option` declared has a value that it may have."""
    rules = each.metadata
    if value is None and each.default is None:
        return
    if isinstance(value, tuple):
        for part in value if rules["choices"] else ():
            check_choice(each.name.removesuffix("s"), part, rules["choices"])
    elif rules["choices"]:
        check_choice(each.name, value, rules["choices"])
    if rules["low"] is not None and "float" in str(each.type):
        check_number(each.name, value, rules["low"], rules["high"], closed=rules["closed"])
    elif rules["low"] is not None:
        check_count(each.name, value, rules["low"])
    if rules["most"] < float("inf") and value > rules["most"]:
        raise ValueError(f"{each.name} must be at most {rules['most']:,}, got {value}")


def convert(name: str, value: Any, kind: Any, source: str) -> Any:
    """Convert a value of YAML to the type of a setting, or raise if it is of another."""
    text = str(kind)
    if value is None and "None" in text:
        return None
    if kind == tuple[str, ...]:
        value = [value] if isinstance(value, str) else value
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
            raise TypeError(f"{name} in {source} must be a list of texts, got {value!r}")
        return tuple(dict.fromkeys(value))
    wanted: Any = next((t for t in (bool, dict, int, float, str) if t.__name__ in text), str)
    if wanted is float and isinstance(value, (int, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)  # YAML reads 1e-3 as a string
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TypeError(f"{name} in {source} must be {wanted.__name__}, got {value!r}")
    return value
