"""The engine for many machines: every cell is a task of a Ray cluster."""

from __future__ import annotations

import logging
import uuid
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torchlace.experiments.cells import Task
from torchlace.experiments.remote import Files, pack, run_remotely, unpack
from torchlace.experiments.worker import STOPPED, make_job
from torchlace.runs import Run

_RETRIES = 5


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
        self.marks: set[Path] = set()
        self.ours = False

    def __enter__(self) -> Self:
        try:
            self.ray: Any = import_module("ray")
        except ImportError as error:
            raise ImportError("the ray engine needs pip install 'torchlace[ray]'") from error
        ray = self.ray
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for mark in self.marks:
            mark.unlink(missing_ok=True)
        if self.ours:
            self.ray.shutdown()

    def start(self, task: Task, path: Path) -> _Remote:
        """Hand a cell to the cluster."""
        path = path.resolve()
        mark = None if self.shared is False else str(self._mark(path.parent))
        job = make_job(task, path, {})
        return _Remote(self.ray, self.remote.remote(job, mark, pack(path)), path)

    def _mark(self, runs: Path) -> Path:
        """A file by which another machine knows the same disk."""
        for mark in self.marks:
            if mark.parent == runs:
                return mark
        mark = runs / f".grid-{uuid.uuid4().hex}"
        mark.touch()
        self.marks.add(mark)
        return mark


class _Remote:
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
            unpack(files, self.path)
        return int(code)
