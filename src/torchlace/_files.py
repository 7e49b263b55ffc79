"""Files: written whole or not at all, and read only if there is memory for what they claim."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

# How the names of files end that are being written, or were when a process was killed.
PART = ".part"


def write_whole(
    path: Path,
    write: Callable[[Any], object],
    failure: type[Exception] = OSError,
    *,
    folders: bool = False,
) -> None:
    """Write beside and rename, so that a kill or a full disk leaves the old file as it was.

    Args:
        path: the file.
        write: writes to the binary file it is given.
        failure: the error of a file that can't be written; its cause is the system's.
        folders: whether folders on the way are made.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a"), lambda file: file.write(b"all of it"))
        ...     Path(folder, "a").read_bytes()
        b'all of it'
    """
    # Renaming would put a file in the place of /dev/null or of a pipe.
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise failure(f"{path} is a device or a pipe and can't be written whole: name a file")
    # By process, or two that write the same file would write into one another's.
    beside = path.with_name(f".{path.name}.{os.getpid()}{PART}")
    try:
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise failure(
            f"{path} could not be written ({error.strerror or error}); what was there before is "
            "intact. Make room or choose another place, then start the same command again"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def require_memory(
    source: object,
    needed: int,
    failure: type[Exception] = ValueError,
    *,
    advice: str = "if it should be smaller than that, it is damaged",
) -> None:
    """Raise where ``source`` would take more bytes than this machine has.

    Args:
        source: what needs them.
        needed: how many.
        failure: the error to raise.
        advice: what to do then.

    Example:
        >>> require_memory("a.npz", 1000)
        >>> require_memory("a.npz", 10**18)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: a.npz would take 931,322,575 GiB of memory, this machine has ...
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise failure(
            f"{source} would take {needed / 2**30:,.0f} GiB of memory, this machine has "
            f"{there / 2**30:,.0f}; {advice}"
        )


def check_header(file: IO[bytes], size: int, name: object) -> None:
    """Raise where the header of a .npy file claims more than the file holds, or is broken.

    Args:
        file: the file, at its beginning.
        size: how many bytes it has.
        name: what to call it in errors.

    Example:
        >>> import io
        >>> import numpy as np
        >>> file = io.BytesIO()
        >>> np.save(file, np.zeros(10**4))
        >>> _ = file.seek(0)
        >>> check_header(file, 1000, "a.npy")
        Traceback (most recent call last):
        ValueError: a.npy says that it is float64 of shape (10000,) and holds 872 bytes
    """
    from numpy.lib import format as npy

    reader = {(1, 0): npy.read_array_header_1_0}.get(
        npy.read_magic(file), npy.read_array_header_2_0
    )
    shape, _, kind = reader(file)
    there = size - file.tell()
    if kind.hasobject:  # of any size, and refused by all who read without pickles
        return
    if min(shape, default=0) < 0 or not kind.itemsize or math.prod(shape) * kind.itemsize > there:
        raise ValueError(
            f"{name} says that it is {kind} of shape {shape} and holds {there:,} bytes"
        )
