"""What is kept beside a run, for the next time it is looked at."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from torchlace.inspection.watching import Watcher
from torchlace.runs import Run, RunError, seals, write_whole

_NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


def kept(run: Run, path: Path, watcher: Watcher) -> bytes | None:
    """What an earlier look at a run kept, if there is any and it is what was written.

    Unlike the run's own files it can be made anew from these, so damage is told of and no error.
    """
    if not path.exists():
        return None
    try:
        return run.read(path)
    except RunError as error:
        reason = str(error).partition(". ")[0]
        watcher.message(f"note: {reason}; it is made anew")
        return None


def keep(path: Path, content: Iterable[seals.Buffer], watcher: Watcher) -> None:
    """Write a file beside a run; where only others may write there, say so and do without.

    Raises:
        RunError: if there is no room for it.
    """
    try:
        write_whole(path, lambda file: file.writelines(content))
    except RunError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NOT_OURS:
            raise
        watcher.message(
            f"note: {path} can't be kept ({cause.strerror}), so it is made anew next time"
        )
