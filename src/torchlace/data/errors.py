"""What can be wrong with data, and the optional packages that read it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torchlace._text import counted, setting, shown

_LISTED = 10


class DataError(ValueError):
    """Data that can't be used as it is; the message says what is wrong and what to do."""


class MissingDataError(DataError, FileNotFoundError):
    """Data that isn't where it was looked for."""


@dataclass(frozen=True)
class BadImage:
    """An image file that can't be used, and what is wrong with it."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.path)}: {shown(self.reason)}"


class BadImagesError(DataError):
    """Some image files can't be used.

    Attributes:
        bad: all of them; the message lists the first ten.
    """

    def __init__(self, message: str, bad: Sequence[BadImage] = ()) -> None:
        # A DataLoader makes the error of a worker anew from a message that is its whole traceback.
        super().__init__(message.rpartition(f"{type(self).__name__}: ")[2])
        self.bad = tuple(bad)

    @classmethod
    def of(cls, bad: Sequence[BadImage]) -> BadImagesError:
        """The error that lists these files."""
        lines = [f"  {each}" for each in bad[:_LISTED]]
        if len(bad) > _LISTED:
            lines.append(f"  and {len(bad) - _LISTED} more")
        count, them = counted(len(bad), "image"), "it" if len(bad) == 1 else "them"
        return cls(
            f"{count} can't be used; repair or remove {them}, or go on without {them} by "
            f"{setting('skip_bad', True)} (in YAML, skip_bad: true):\n" + "\n".join(lines),
            bad,
        )


def require(module: str, package: str, purpose: str) -> ModuleType:
    """Import an optional ``module``, or say which package brings it and why it is needed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {package}: pip install 'torchlace[train]' ({error})"
        ) from error
