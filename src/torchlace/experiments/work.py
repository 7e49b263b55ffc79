"""What the process of a cell does: train, examine the features, note what went wrong."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import torch

from torchlace.experiments.pictures import pack
from torchlace.experiments.worker import STOPPED, Job
from torchlace.runs import Lock, Run
from torchlace.runs.files import LOCK
from torchlace.training import InterruptedRun, Silent, TrainConfig, train


def work(job: Job) -> int:
    """Run a job in this process; 0, 130 if it was stopped, or 1 with failed.txt written."""
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    run = Run(job.path)
    # One that outlived its grid ends with its epoch; until then this one waits.
    lock = Lock(run.path, LOCK)
    lock.acquire(wait=True)
    run.failure_path.unlink(missing_ok=True)
    try:
        train(TrainConfig.from_dict(job.config), run.path, reporter=_Log(), locked=True)
        # It is only needed to go on, and is by far the largest file.
        run.checkpoint_path.unlink(missing_ok=True)
        _examine(job, run)
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


class _Log(Silent):
    """Tells what is out of the ordinary, such as where a run goes on."""

    def message(self, text: str) -> None:
        """A line of the log."""
        print(text)


def _examine(job: Job, run: Run) -> None:
    if not job.inspect or (run.evaluation_path.exists() and not job.embeddings):
        return
    from torchlace.evaluation import inspect, picture

    found = inspect(run, device=job.config.get("device", "auto"))
    drawn: dict[str, Any] = {}
    for name in job.embeddings:
        space, method, dimension = name.split("-")
        # The names were checked when the experiment was read.
        wanted: Any = {"space": space, "method": method, "dim": int(dimension[0])}
        result = picture(found, **wanted)
        drawn[name] = {
            "class_names": list(found.class_names),
            "dim": wanted["dim"],
            "indices": pack(result.indices, np.int32),
            "labels": pack(found.labels.numpy()[result.indices], np.int16),
            "points": pack(result.points, np.float16),
            "signatures": pack(result.signatures, np.float16),
        }
    if drawn:
        run.write_json(run.embeddings_path, drawn)
