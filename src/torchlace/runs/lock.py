"""Files that one process holds; the system lets go of them when the process ends, however."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from torchlace.runs.files import CLAIM, LOCK

try:
    import fcntl
except ImportError:  # no such locks on Windows: runs are not guarded there
    fcntl = None  # type: ignore[assignment]


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
        # Whoever held it may have removed it: what counts is the file that is there then.
        while not self.there:
            self.release()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if fcntl is None:
                return True
            with contextlib.suppress(FileNotFoundError):  # the folder has just been removed
                self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            if self.taken and not self._lock(wait):
                self.release()
                return False
        return True

    @property
    def there(self) -> bool:
        """Whether it is held, and still is the file of that name."""
        if self.descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self.descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    @property
    def taken(self) -> bool:
        """Whether it was acquired, whatever has become of the file since."""
        return self.descriptor is not None

    def _lock(self, wait: bool) -> bool:
        assert self.descriptor is not None
        # Somebody who looks whether it is held (`held`) holds it for a moment.
        for attempt in range(3):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                return True
            time.sleep(0.02 * (attempt + 1))
        return False

    def release(self) -> None:
        """Let it go."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def remove(self) -> None:
        """Take the file away, and its folder if nothing else is in it, before letting go."""
        if self.there:
            with contextlib.suppress(OSError):  # there is something in it, or it may not be written
                if [*self.path.parent.iterdir()] == [self.path]:
                    self.path.unlink()
                    self.path.parent.rmdir()
        self.release()


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
