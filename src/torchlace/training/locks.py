"""Files that one process holds; the system lets go of them when the process ends, however."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on Windows: runs are not guarded there
    fcntl = None  # type: ignore[assignment]

CLAIM, LOCK = ".claim", ".lock"


class Lock:
    """A lock in a run directory.

    A grid claims a run (``.claim``) before it starts it, so that two grids share the work; the
    process that trains locks the directory (``.lock``), so that nobody writes beside one which
    outlived its grid.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first, second = Lock(Path(folder), CLAIM), Lock(Path(folder), CLAIM)
        ...     print(first.acquire(), second.acquire(), held(Path(folder)))
        ...     first.release()
        ...     print(held(Path(folder)))
        True False True
        False
    """

    def __init__(self, run: Path, name: str) -> None:
        self.path = run / name
        self.descriptor: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """Take it if it is free, or when it becomes free; whether it is taken."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            return True
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        # Somebody who looks whether it is held (`held`) holds it for a moment.
        for attempt in range(3):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                return True
            time.sleep(0.02 * (attempt + 1))
        self.release()
        return False

    def release(self) -> None:
        """Let go of it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def held(run: Path) -> bool:
    """Whether a living process has claimed or locked a run directory."""
    return any(_held(run / name) for name in (CLAIM, LOCK))


def _held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    if fcntl is None:
        os.close(descriptor)
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
