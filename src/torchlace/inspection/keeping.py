"""What is kept beside a run, for the next time it is looked at."""

from __future__ import annotations

import errno
from pathlib import Path

from torchlace.inspection.watching import Watcher
from torchlace.training.rundir import RunError, write_whole

_NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


def keep(path: Path, content: bytes, watcher: Watcher) -> None:
    """Write a file beside a run; where only others may write there, say so and do without.

    Raises:
        RunError: if there is no room for it.
    """
    try:
        write_whole(path, lambda file: file.write(content))
    except RunError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NOT_OURS:
            raise
        watcher.message(
            f"note: {path} can't be kept ({cause.strerror}), so it is made anew next time"
        )
