"""The directory of a run: its settings, its files, and the model in it.

Nothing is loaded until it is used: a machine of a cluster that only starts a process needs the
names of the files and no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlace._registry import lazy_names

if TYPE_CHECKING:
    from torchlace.runs.config import TrainConfig
    from torchlace.runs.files import find_runs
    from torchlace.runs.load import LoadedRun, load_run, make_classifier, read_data
    from torchlace.runs.lock import Lock, held
    from torchlace.runs.run import Run, RunError, write_whole

__all__ = [
    "LoadedRun",
    "Lock",
    "Run",
    "RunError",
    "TrainConfig",
    "find_runs",
    "held",
    "load_run",
    "make_classifier",
    "read_data",
    "write_whole",
]

__getattr__ = lazy_names(
    __name__,
    {
        "config": ("TrainConfig",),
        "files": ("find_runs",),
        "load": ("LoadedRun", "load_run", "make_classifier", "read_data"),
        "lock": ("Lock", "held"),
        "run": ("Run", "RunError", "write_whole"),
    },
)
