"""Trains one cell of a grid in a process of its own.

Processes are forked from one that has imported torch already (a "fork server", which holds no
device), so that a cell starts at once. Nothing heavy is imported above: a machine of a cluster
imports this module only to start such a process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path

from torchlace._reporter import Reporter
from torchlace.experiments.cells import Task
from torchlace.runs import Lock, Run
from torchlace.runs.files import LOCK

STOPPED = 130
# What takes long to import. None of it may look at a device, or forked processes can't use it.
LOADED = ["torchlace.training", "sklearn.datasets", "torchvision", "torch.utils.tensorboard"]
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


class CellProcess:
    """A process that trains one cell, and stops when the process that started it ends.

    Args:
        task: what is trained.
        path: the run directory.
        environment: all environment variables of the process.
        threads: of torch; None leaves them alone.
    """

    def __init__(
        self, task: Task, path: Path, environment: Mapping[str, str], threads: int | None = None
    ) -> None:
        self.environment = environment
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        _start_server()
        theirs, self.life = context.Pipe(duplex=False)
        self.process = context.Process(
            target=_be_cell, args=(task, path, environment, threads, theirs)
        )
        self.process.start()
        theirs.close()

    def poll(self) -> int | None:
        """The exit code, or None as long as it runs; negative for a signal."""
        return self.process.exitcode

    def wait(self) -> int:
        """The exit code, once it has ended."""
        while (code := self.poll()) is None:
            # In turns: what cancels a task of a cluster does not wake a process that waits.
            self.process.join(0.2)
        return code

    def interrupt(self) -> None:
        """Ask it to stop after this epoch."""
        # Not by a signal: one that comes before the process listens would be lost.
        with contextlib.suppress(OSError):
            self.life.send(None)

    def kill(self) -> None:
        """End it at once."""
        if self.process.is_alive():
            self.process.kill()


def run_cell(task: Task, path: Path) -> int:
    """Train a cell in this process, and examine it where that is needed.

    Returns:
        0; 130 if it was stopped; 1 if it failed, and then failed.txt says why.
    """
    from torchlace.training import InterruptedRun, train

    run = Run(path)
    # One that outlived its grid ends with its epoch; until then this one waits.
    lock = Lock(path, LOCK)
    lock.acquire(wait=True)
    run.failure_path.unlink(missing_ok=True)
    try:
        train(task.config, path, reporter=_Log(), locked=True)
        # It is only needed to go on, and is by far the largest file.
        run.checkpoint_path.unlink(missing_ok=True)
        if task.inspect and not task.complete(path.parent):
            from torchlace.experiments.pictures import draw_embeddings

            drawn = draw_embeddings(task, run)
            if drawn:
                run.write_json(run.embeddings_path, drawn)
        if task.unknown and not task.complete(path.parent):
            from torchlace.evaluation import unknown_scores

            root = Path(task.config.root) if task.config.root else None
            unknown_scores(run, task.unknown, device=task.config.device, root=root)
        if task.later and not task.complete(path.parent):
            from torchlace.experiments.later import later_scores

            later_scores(run, task.later, device=task.config.device)
    except InterruptedRun as stop:
        print(stop)
        return STOPPED
    except Exception as error:
        traceback.print_exc()
        run.fail(f"{type(error).__name__}: {error}")
        return 1
    finally:
        lock.release()
    return 0


class _Log(Reporter):
    """Prints what is out of the ordinary, such as where a run goes on."""

    def message(self, text: str) -> None:
        print(text)


def _start_server() -> None:
    """Start what processes are forked from, deaf to Ctrl-C and SIGTERM.

    Ctrl-C in the terminal goes to all processes, and so does the SIGTERM of ``timeout`` and of
    schedulers: the grid heeds it and tells its cells.
    """
    resource_tracker.ensure_running()  # would lift the mask below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_cell(
    task: Task, path: Path, environment: Mapping[str, str], threads: int | None, life: Connection
) -> None:
    # A session of its own: Ctrl-C in the terminal reaches the grid alone, which passes it on once.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    os.environ.clear()
    os.environ.update(environment)
    path.mkdir(parents=True, exist_ok=True)
    log = os.open(Run(path).log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    threading.Thread(target=_stop_with, args=(life,), daemon=True).start()
    try:
        import torch

        if threads is not None:
            torch.set_num_threads(threads)
        code = run_cell(task, path)
    except KeyboardInterrupt:
        code = STOPPED
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stop_with(life: Connection) -> None:
    """Stop when asked to, or when the process at the other end of the pipe ends."""
    with contextlib.suppress(EOFError, OSError):
        life.recv()
    os.kill(os.getpid(), signal.SIGINT)
