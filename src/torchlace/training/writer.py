"""Files written beside the training, which goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Writer:
    """Does one piece of writing after another: at once, or in the background.

    An error of what is written in the background comes up at :meth:`wait`, or where the writer
    is left.

    Example:
        >>> written = []
        >>> with Writer(background=True) as writer:
        ...     writer.write(lambda: written.append(1))
        >>> written
        [1]
    """

    def __init__(self, *, background: bool) -> None:
        self.background = background
        self.pool = ThreadPoolExecutor(1)
        self.pending: Future[object] | None = None

    def write(self, work: Callable[[], object]) -> None:
        """Begin a piece of work, after the last one is done."""
        self.wait()
        if self.background:
            self.pending = self.pool.submit(work)
        else:
            work()

    def wait(self) -> None:
        """Until all is written."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(str(failure))
        finally:
            self.pool.shutdown()
