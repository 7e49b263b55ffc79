"""A cell on a machine of a cluster; imports nothing but the standard library."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from operator import methodcaller
from pathlib import Path

from torchlace._files import write_whole
from torchlace.experiments.worker import Job, Worker
from torchlace.runs.files import CONFIG, TRAVELLING

Files = dict[str, bytes]


def run_remotely(job: Job, mark: str | None, files: Files) -> tuple[int, Files]:
    """Run a job here; its exit code, and the files of the run if they must travel.

    Args:
        job: with the run directory as the driver knows it.
        mark: a file that the driver has put beside its runs; where it is there too, both see the
            same disk and nothing travels. None: never.
        files: what the driver has of the run already.
    """
    shared = mark is not None and Path(mark).exists()
    if not shared:
        place = Path(tempfile.gettempdir(), f"torchlace-{os.getuid()}", Path(job.path).name)
        place.mkdir(parents=True, exist_ok=True)
        job = dataclasses.replace(job, path=str(place))
        # What an earlier attempt left here is at least as far.
        if not (place / CONFIG).exists():
            unpack(files, place)
    code = _run(dataclasses.replace(job, environment=dict(os.environ)))
    if shared:
        return code, {}
    found = pack(place)
    if code == 0:
        shutil.rmtree(place, ignore_errors=True)
    return code, found


def pack(path: Path) -> Files:
    """The files of a run."""
    return {name: (path / name).read_bytes() for name in TRAVELLING if (path / name).exists()}


def unpack(files: Files, path: Path) -> None:
    """Make a run directory what was packed: files appear whole, and others of a run go."""
    for name in TRAVELLING:
        if name in files:
            write_whole(path / name, methodcaller("write", files[name]))
    for name in set(TRAVELLING) - set(files):
        (path / name).unlink(missing_ok=True)


def _run(job: Job) -> int:
    worker = Worker(job)
    try:
        return worker.wait()
    except KeyboardInterrupt:
        # The driver has cancelled this task: the epoch is finished, and what is there goes back.
        worker.interrupt()
        return worker.wait()
