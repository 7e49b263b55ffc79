"""Ctrl-C while modules load."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

STOPPED = 130


def leave_imports_on_interrupt() -> None:
    """Let Ctrl-C end the process at once where it is importing, and interrupt it elsewhere.

    What is imported can't be trusted to pass an interruption on: torch goes on without a numpy that
    was cut short, and aborts where its own extension is. Nothing is under way then that could be
    left half-done.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt
