"""Engines by name, and the one of this machine."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from torchlace._checks import check_choice, check_count
from torchlace._device import no_device
from torchlace.experiments.cells import Task
from torchlace.experiments.grid import Engine
from torchlace.experiments.mps import Mps
from torchlace.experiments.worker import Job, Worker, make_job

ENGINES = ("local", "ray")


def make_engine(name: str = "local", *, jobs: int = 1, device: str = "auto") -> Engine:
    """An engine by name.

    Args:
        name: ``"local"``: processes on this machine, on all its GPUs or its CPU; ``"ray"``: tasks
            on a Ray cluster.
        jobs: cells at a time on each device.
        device: ``"cpu"`` leaves GPUs alone; ``"cuda"`` insists on them.

    Example:
        >>> make_engine("local", jobs=2, device="cpu").slots
        2
    """
    check_choice("engine", name, ENGINES)
    check_choice("device", device, ("auto", "cpu", "cuda"))
    check_count("jobs", jobs)
    if name == "local":
        return LocalEngine(jobs, device)
    from torchlace.experiments.cluster import RayEngine

    return RayEngine(jobs, device)


class LocalEngine:
    """Processes on this machine: ``jobs`` at a time on each GPU, or on the CPU."""

    def __init__(self, jobs: int = 1, device: str = "auto") -> None:
        self.jobs = jobs
        self.devices = [] if device == "cpu" else cuda_devices()
        if device == "cuda" and not self.devices:
            raise no_device(device)
        self.handles: list[_OnDevice] = []
        self.mps = Mps(enabled=bool(self.devices) and jobs > 1)

    @property
    def slots(self) -> int:
        """Cells at a time."""
        return self.jobs * max(len(self.devices), 1)

    @property
    def threads(self) -> int:
        """Threads of each cell: its share of those that torch would use here."""
        import torch

        return max(torch.get_num_threads() // self.slots, 1)

    def __enter__(self) -> Self:
        self.mps.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.mps.stop()

    def start(self, task: Task, path: Path) -> Worker:
        """Start a cell on the device that has the fewest."""
        environment = {**os.environ, **self.mps.environment}
        device = self._quietest()
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        worker = _OnDevice(make_job(task, path, environment, self.threads), device)
        self.handles.append(worker)
        return worker

    def _quietest(self) -> str | None:
        self.handles = [each for each in self.handles if each.poll() is None]
        busy = Counter(each.device for each in self.handles)
        return min(self.devices, key=lambda device: busy[device], default=None)


class _OnDevice(Worker):
    def __init__(self, job: Job, device: str | None) -> None:
        super().__init__(job)
        self.device = device


def cuda_devices() -> list[str]:
    """The CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return names[:count]
