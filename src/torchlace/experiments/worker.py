"""One cell in a process of its own.

Processes are forked from one that has imported torch already (a "fork server", which
holds no device), so that a cell starts at once. Nothing heavy is imported above: a worker of a
cluster imports this module only to start such a process.
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
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlace.runs.files import LOG

if TYPE_CHECKING:
    from torchlace.experiments.cells import Task

STOPPED = 130
# What takes long to import. None of it may look at a device, or forked processes can't use it.
LOADED = [
    *("torchlace.training", "torchlace.experiments.work"),
    *("sklearn.datasets", "torchvision", "torch.utils.tensorboard"),
    "torchlace.experiments.listening",
]


@dataclass(frozen=True)
class Job:
    """A cell as a process takes it, in plain values.

    Attributes:
        config: settings of :class:`torchlace.training.TrainConfig`.
        path: the run directory.
        inspect: whether its features are examined after training.
        embeddings: pictures of the features to compute.
        environment: all environment variables of the process.
        threads: of torch; None leaves them alone.
    """

    config: dict[str, Any]
    path: str
    inspect: bool = False
    embeddings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None


def make_job(
    task: Task, path: Path, environment: Mapping[str, str], threads: int | None = None
) -> Job:
    """A job from a cell, to run in this directory."""
    settings = task.config.as_dict()
    return Job(settings, str(path), task.inspect, task.embeddings, environment, threads)


class Worker:
    """A process that runs one job, and stops when this process ends."""

    def __init__(self, job: Job) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        _start_server()
        theirs, self.life = context.Pipe(duplex=False)
        self.process = context.Process(target=_be_worker, args=(job, theirs))
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


def _start_server() -> None:
    """Start what processes are forked from, deaf to Ctrl-C and SIGTERM until it has loaded."""
    resource_tracker.ensure_running()  # would lift the mask below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_worker(job: Job, life: Connection) -> None:
    # A session of its own: Ctrl-C in the terminal reaches the grid alone, which passes it on once.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(job.environment)
    path = Path(job.path)
    path.mkdir(parents=True, exist_ok=True)
    log = os.open(path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    threading.Thread(target=_stop_with, args=(life,), daemon=True).start()
    try:
        from torchlace.experiments.work import work

        code = work(job)
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
