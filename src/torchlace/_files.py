"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

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
