"""Where the cells of a grid run: what an engine is, engines by name, and that of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, Self

import torch

from torchlace._text import setting
from torchlace._torch import no_device
from torchlace._values import check_choice, check_count
from torchlace.data import KNOWN, MissingDataError, data_root, whole_source
from torchlace.evaluation.pictures import require_method
from torchlace.experiments.cells import Task
from torchlace.experiments.process import CellProcess

ENGINES = ("local", "ray")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_CONTROL = "nvidia-cuda-mps-control"
_PIPE, _LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"


class Handle(Protocol):
    """A cell at work."""

    def poll(self) -> int | None:
        """The exit code, or None as long as it runs."""

    def interrupt(self) -> None:
        """Ask it to stop after this epoch."""

    def kill(self) -> None:
        """End it at once."""


class Engine(Protocol):
    """Where cells run; entered before the first starts, left after the last has ended."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    @property
    def slots(self) -> int | None:
        """Cells at a time; None where the engine queues them itself."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise if the driver's machine lacks what these runs need there."""

    def start(self, task: Task, path: Path) -> Handle:
        """Start a cell in its run directory."""


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
    from torchlace.experiments.ray import RayEngine

    return RayEngine(jobs, device)


class LocalEngine:
    """Processes on this machine: ``jobs`` at a time on each GPU, or on the CPU."""

    def __init__(self, jobs: int = 1, device: str = "auto") -> None:
        self.jobs = jobs
        self.devices = [] if device == "cpu" else _cuda_devices()
        if device == "cuda" and not self.devices:
            raise no_device(device)
        self.cells: list[CellProcess] = []
        self.stack = ExitStack()
        self.environment: Mapping[str, str] = {}

    @property
    def slots(self) -> int:
        """Cells at a time."""
        return self.jobs * max(len(self.devices), 1)

    @property
    def threads(self) -> int:
        """Threads of each cell: its share of those that torch would use here."""
        return max(torch.get_num_threads() // self.slots, 1)

    def __enter__(self) -> Self:
        if self.devices and self.jobs > 1:
            self.environment = self.stack.enter_context(_shared_gpus())
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise if images or packages that these runs need are not on this machine."""
        require_data(tasks)
        require_layouts(tasks)

    def start(self, task: Task, path: Path) -> CellProcess:
        """Start a cell on the device that has the fewest."""
        environment = {**os.environ, **self.environment}
        self.cells = [each for each in self.cells if each.poll() is None]
        busy = Counter(each.environment.get(_VISIBLE) for each in self.cells)
        if self.devices:
            environment[_VISIBLE] = min(self.devices, key=lambda device: busy[device])
        self.cells.append(CellProcess(task, path, environment, self.threads))
        return self.cells[-1]


def require_data(tasks: Sequence[Task]) -> None:
    """Raise unless the images of all runs are on this machine."""
    for config in (task.config for task in tasks):
        known = KNOWN.get(whole_source(config.data))
        if known is None or known.pack is None:
            continue
        pack = data_root(config.root) / f"{known.pack}.npz"
        if not pack.is_file():
            raise MissingDataError(
                f"no {pack}: get it by `torchlace data fetch {known.pack}`, say where it is by "
                f"{setting('root')}, or leave it out by {setting('datasets')}"
            )


def require_layouts(tasks: Sequence[Task]) -> None:
    """Raise unless what lays out features as these runs need it is installed."""
    for method in {name.split("-")[1] for task in tasks for name in task.embeddings}:
        require_method(method)  # type: ignore[arg-type]  # checked when it was read


def _cuda_devices() -> list[str]:
    """The CUDA devices that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    count = torch.cuda.device_count()
    visible = os.environ.get(_VISIBLE)
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return names[:count]


@contextmanager
def _shared_gpus() -> Iterator[Mapping[str, str]]:
    """Run NVIDIA's MPS daemon, so that processes share a GPU without taking turns.

    It is started where it is installed and none runs. Without it processes take turns, which is
    slower and nothing else. Yields the environment by which processes find it.
    """
    if shutil.which(_CONTROL) is None or _mps_answers("get_server_list", os.environ):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="torchlace-mps-", ignore_cleanup_errors=True) as folder:
        places = {_PIPE: folder, _LOG: folder}
        # It sees all devices; processes choose among them.
        daemon = {name: value for name, value in os.environ.items() if name != _VISIBLE} | places
        subprocess.run([_CONTROL, "-d"], env=daemon, capture_output=True, check=False)
        try:
            yield places if _mps_answers("get_server_list", daemon) else {}
        finally:
            _mps_answers("quit", daemon)


def _mps_answers(question: str, environment: Mapping[str, str]) -> bool:
    try:
        asked = subprocess.run(
            [_CONTROL],
            input=f"{question}\n",
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0
