"""A finished run examined: its features, kept beside it, and all figures of merit."""

from torchlace.inspection.embeddings import Embedded, check_method, embedding
from torchlace.inspection.inspection import Inspection, inspect
from torchlace.inspection.watching import Quiet, Watcher
from torchlace.runs import LoadedRun, load_run

__all__ = [
    "Embedded",
    "Inspection",
    "LoadedRun",
    "Quiet",
    "Watcher",
    "check_method",
    "embedding",
    "inspect",
    "load_run",
]
