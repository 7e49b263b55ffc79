"""The engine for many machines: every cell is a task of a Ray cluster.

Nothing heavy is imported above: a machine of the cluster imports this to start a process.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, Self

from torchlace._files import write_whole
from torchlace._registry import required
from torchlace.experiments.cells import Task
from torchlace.experiments.process import STOPPED, CellProcess
from torchlace.runs import Run
from torchlace.runs.files import TRAVELLING

_RETRIES = 5
Files = dict[str, bytes]


class RayEngine:
    """Tasks of a Ray cluster, ``jobs`` at a time on each GPU, one on each CPU where there are none.

    Connects to the cluster that RAY_ADDRESS or a running ``ray start`` names, or starts Ray here.
    A cell whose machine is lost is started on another by Ray. Where machines don't see the driver's
    disk, finished runs come back as they finish.

    Args:
        jobs: cells at a time on each GPU.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``: GPUs if the cluster has any.
        shared: whether machines see the driver's disk; looked up if omitted.
    """

    slots = None

    def __init__(self, jobs: int = 1, device: str = "auto", *, shared: bool | None = None) -> None:
        self.jobs, self.device, self.shared = jobs, device, shared
        self.marks: dict[Path, Path] = {}
        self.ours = False

    def __enter__(self) -> Self:
        ray = self.ray = required("ray", "the ray engine needs pip install 'torchlace[ray]'")
        if not ray.is_initialized():
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
            self.ours = True
        gpus = self.device != "cpu" and (
            self.device == "cuda" or ray.cluster_resources().get("GPU", 0) > 0
        )
        self.remote = ray.remote(
            num_cpus=1, num_gpus=1 / self.jobs if gpus else 0, max_retries=_RETRIES
        )(run_remotely)
        return self

    def __exit__(self, *error: object) -> None:
        for mark in self.marks.values():
            mark.unlink(missing_ok=True)
        if self.ours:
            self.ray.shutdown()

    def check(self, tasks: Sequence[Task]) -> None:
        """Leave it to the machines of the cluster to say what they lack."""

    def start(self, task: Task, path: Path) -> _Remote:
        """Hand a cell to the cluster."""
        path = path.resolve()
        mark = None if self.shared is False else str(self._mark(path.parent))
        sent = self.remote.remote(task, str(path), mark, read_files(path))
        return _Remote(self.ray, sent, path)

    def _mark(self, runs: Path) -> Path:
        """A file by which another machine knows the same disk."""
        if runs not in self.marks:
            self.marks[runs] = runs / f".grid-{uuid.uuid4().hex}"
            self.marks[runs].touch()
        return self.marks[runs]


class _Remote:
    """A cell that was handed to the cluster."""

    def __init__(self, ray: Any, reference: Any, path: Path) -> None:
        self.ray, self.reference, self.path = ray, reference, path
        self.code: int | None = None
        self.cancelled = False

    def poll(self) -> int | None:
        """The exit code once the files are here."""
        if self.code is None and self.ray.wait([self.reference], timeout=0)[0]:
            self.code = self._collect()
        return self.code

    def interrupt(self) -> None:
        """Ask it to stop after this epoch; one that waits never starts."""
        self._cancel(force=False)

    def kill(self) -> None:
        """End it at once."""
        self._cancel(force=True)

    def _cancel(self, *, force: bool) -> None:
        self.cancelled = True
        self.ray.cancel(self.reference, force=force)

    def _collect(self) -> int:
        files: Files
        try:
            code, files = self.ray.get(self.reference)
        except self.ray.exceptions.RayError as error:
            if self.cancelled:
                return STOPPED
            Run(self.path).fail(f"{type(error).__name__}: {error}")
            return 1
        if files:
            place_files(files, self.path)
        return int(code)


def run_remotely(task: Task, path: str, mark: str | None, files: Files) -> tuple[int, Files]:
    """Run a cell on a machine of the cluster; its exit code, and its files if they must travel.

    Args:
        task: what is trained.
        path: the run directory as the driver knows it.
        mark: a file that the driver has put beside its runs; where it is there too, both see the
            same disk and nothing travels. None: never.
        files: what the driver has of the run already.
    """
    if mark is not None and Path(mark).exists():
        return _run(task, Path(path)), {}
    place = Path(tempfile.gettempdir(), f"torchlace-{os.getuid()}", Path(path).name)
    place.mkdir(parents=True, exist_ok=True)
    # What an earlier attempt left here is at least as far.
    if not Run(place).config_path.exists():
        place_files(files, place)
    code = _run(task, place)
    found = read_files(place)
    if code == 0:
        shutil.rmtree(place, ignore_errors=True)
    return code, found


def read_files(path: Path) -> Files:
    """The files of a run that travel."""
    return {name: (path / name).read_bytes() for name in TRAVELLING if (path / name).exists()}


def place_files(files: Files, path: Path) -> None:
    """Make a run directory what was sent: files appear whole, and others of a run go."""
    for name in TRAVELLING:
        if name in files:
            write_whole(path / name, methodcaller("write", files[name]))
    for name in set(TRAVELLING) - set(files):
        (path / name).unlink(missing_ok=True)


def _run(task: Task, path: Path) -> int:
    cell = CellProcess(task, path, dict(os.environ))
    try:
        return cell.wait()
    except KeyboardInterrupt:
        # The driver has cancelled this task: the epoch is finished, and what is there goes back.
        cell.interrupt()
        return cell.wait()
