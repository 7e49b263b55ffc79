"""Words of messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

# What a terminal acts upon instead of showing it: control characters, marks that turn the direction
# of writing, separators of lines; and halves of characters, which can't be written at all.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff"
_FOREIGN = re.compile(f"[{_UNSEEN}]")
_FOREIGN_IN_LINES = re.compile(f"(?!\n  )[{_UNSEEN}]")


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
    first = ", ".join(map(shown, names[:5]))
    return first if len(names) <= 5 else f"{first} and {len(names) - 5} more"


# How to spell a setting, from its name, a value and the function or command that takes it.
Spell = Callable[[str, object, str], str | None]
_spell: Spell = lambda name, value, of: None  # noqa: E731 - replaced, not called by this name


def setting(name: str, value: object = None, *, of: str = "") -> str:
    """How a message names a setting: as an argument of Python, or as an option of the command line.

    Args:
        name: of the setting.
        value: that the message proposes for it.
        of: the function that takes it, if that is not the one which was called.

    Example:
        >>> setting("image_size"), setting("device", "cpu"), setting("overwrite", True, of="train")
        ('image_size', 'device="cpu"', 'train(overwrite=True)')
    """
    spelled = _spell(name, value, of)
    if spelled is not None:
        return spelled
    said = f'"{value}"' if isinstance(value, str) else str(value)
    said = name if value is None else f"{name}={said}"
    return f"{of}({said})" if of else said


@contextmanager
def spelling(spell: Spell) -> Iterator[None]:
    """Spell settings by a function in a block; where it returns None they stay as they are."""
    global _spell
    before, _spell = _spell, spell
    try:
        yield
    finally:
        _spell = before


def is_text(name: str) -> bool:
    r"""Whether a name can be written; a file's can hold bytes that are not UTF-8.

    Example:
        >>> is_text("café"), is_text("caf\udce9")
        (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(name: object) -> str:
    r"""A name from outside as it can be printed: what a terminal would act upon is written out.

    Example:
        >>> print(shown("\x1b[31mcat"), shown("two\nlines"), shown("caf\udce9"))
        \x1b[31mcat two\nlines caf\xe9
    """
    return _FOREIGN.sub(_written, str(name))


def shown_lines(text: object) -> str:
    r"""A message as it can be printed: like :func:`shown`, but it may go on in indented lines.

    A name can hold a line break too, but so never begin what looks like a message of its own.

    Example:
        >>> print(shown_lines("2 images can't be used:\n  a.png\n  b\nerror: c.png"))
        2 images can't be used:
          a.png
          b\nerror: c.png
    """
    return _FOREIGN_IN_LINES.sub(_written, str(text))


def _written(found: re.Match[str]) -> str:
    code = ord(found[0])
    # A byte of a file name that is not UTF-8, as Python holds it.
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode()
