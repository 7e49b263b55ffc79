"""What the files of a run are called, and finding runs by them.

Only the standard library is loaded here: a machine of a cluster that merely starts a process has
to know the names too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# A run itself, as training writes it.
CONFIG = "config.yaml"
METRICS = "metrics.csv"
CHECKPOINT = "last.ckpt"
WEIGHTS = "best.safetensors"
RESULT = "result.json"
RECORDS = "records.json"
# What is made from a finished run, and can be made again.
FEATURES = "features.safetensors"
EVALUATION = "evaluation.json"
EMBEDDINGS = "embeddings.json"
UNKNOWN = "unknown.json"
LATER = "later.json"
ONNX = "model.onnx"
# What a grid keeps in it.
LOG = "log.txt"
FAILED = "failed.txt"
# The locks: of the grid that has started it, and of the process that trains.
CLAIM = ".claim"
LOCK = ".lock"

# What makes up a run on another machine. The result comes last, since it says that all is there.
TRAVELLING = (
    *(LOG, FAILED, CONFIG, METRICS, CHECKPOINT, WEIGHTS, EVALUATION, EMBEDDINGS, UNKNOWN, LATER),
    RESULT,
)

# How the names of files begin that a run trained anew removes, with those that training writes.
_EVENTS, _EMBEDDING, _SHARED = "events.out.tfevents", "embedding", ".shared-"
_WRITTEN = (CONFIG, METRICS, CHECKPOINT, WEIGHTS, RESULT, RECORDS)
_DERIVED = (_EVENTS, _EMBEDDING, FEATURES, EVALUATION, UNKNOWN, LATER, ONNX)
# Runs are looked for no deeper than this: what lies there is rather of something else.
_DEEPEST = 4


def embedding_file(space: str, method: str, dimension: int) -> str:
    """Name of the file that holds features laid out in the plane or on the sphere.

    Example:
        >>> embedding_file("raw", "tsne", 3)
        'embedding-raw-tsne-3d.npz'
    """
    return f"{_EMBEDDING}-{space}-{method}-{dimension}d.npz"


def shared_mark(token: str) -> str:
    """Name of a file by which the processes of a run see that they share its folder."""
    return f"{_SHARED}{token}"


def half_written(name: str) -> bool:
    """Whether a hidden file is one that training had begun to write.

    Example:
        >>> half_written(".last.ckpt.123.part"), half_written(".evaluation.json.123.part")
        (True, False)
    """
    # Up to the suffix, and from before the process was named too.
    stems = tuple(f".{each.partition('.')[0]}" for each in _WRITTEN)
    return name.startswith((*stems, _SHARED))


def replaced(name: str) -> bool:
    """Whether a file goes when its run is trained anew."""
    return name in _WRITTEN or name.startswith(_DERIVED) or half_written(name)


def find_runs(paths: Iterable[Path | str]) -> list[Path]:
    """Run directories, with every folder of runs replaced by the runs in it, sorted by name.

    Runs are found down to four levels below a folder; hidden folders and those inside of runs are
    not looked into. A run that is given twice, or reached by links too, counts once. What is
    neither stays as it is, so that whoever opens it says what is wrong with it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b", "a"):
        ...         run = Path(folder, name)
        ...         run.mkdir()
        ...         _ = (run / CONFIG).write_text("")
        ...     [run.name for run in find_runs([folder])]
        ['a', 'b']
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        for run in _runs(path) or [path]:
            found.setdefault(os.path.realpath(run), run)
    return list(found.values())


def _runs(top: Path) -> list[Path]:
    found: dict[str, Path] = {}
    entered: dict[str, int] = {}
    folders: list[tuple[Path, int]] = [(top, 0)]
    links: list[tuple[Path, int]] = []
    while folders or links:
        # Links last, so that a run goes by the name of where it lies.
        path, depth = (folders or links).pop()
        place = os.path.realpath(path)
        if os.path.exists(path / CONFIG):
            found.setdefault(place, path)
        elif depth < entered.get(place, _DEEPEST):
            entered[place] = depth
            for sub in _subfolders(path):
                (links if sub.is_symlink() else folders).append((sub, depth + 1))
    return sorted(found.values())


def _subfolders(path: Path) -> list[Path]:
    """Those that are not hidden, the last name first."""
    try:
        with os.scandir(path) as entries:
            found = [path / each.name for each in entries if each.name[0] != "."]
    except OSError:  # no folder, or not for us to read
        return []
    # Unlike an entry's own is_dir, this says no of a link to itself rather than raise.
    return sorted(filter(os.path.isdir, found), reverse=True)
