"""Options of heads and backgrounds: which there are, and what to say of one that there is not."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

from torchlace._checks import check_choice


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


def check_options(kind: type, given: Iterable[str]) -> None:
    """Raise a TypeError that names the options there are, unless all of these are among them."""
    known = option_names(kind)
    for name in given:
        try:
            check_choice(f"option of {kind.__name__}", name, known)
        except ValueError as error:
            raise TypeError(str(error)) from None
