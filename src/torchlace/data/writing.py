"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchlace.data.errors import DataError


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Write beside its place and rename; folders on the way are made.

    Raises:
        DataError: if it can't be; what was there before is left as it was.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise DataError(
            f"{path} could not be written ({error.strerror or error}): make room, or choose "
            "another place"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
