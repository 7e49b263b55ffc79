"""Names of the files of a run; no other module spells them.

Only the standard library is loaded here: a machine of a cluster that merely starts a process has
to know the names too.
"""

from __future__ import annotations

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
ONNX = "model.onnx"
# What a grid keeps in it.
LOG = "log.txt"
FAILED = "failed.txt"
# The locks: of the grid that has started it, and of the process that trains.
CLAIM = ".claim"
LOCK = ".lock"

# What makes up a run on another machine. The result comes last, since it says that all is there.
TRAVELLING = (*(LOG, FAILED, CONFIG, METRICS, CHECKPOINT, WEIGHTS, EVALUATION, EMBEDDINGS, RESULT),)

# How the names of files begin that a run trained anew removes, with those that training writes.
_EVENTS, _EMBEDDING, _SHARED = "events.out.tfevents", "embedding", ".shared-"
_WRITTEN = (CONFIG, METRICS, CHECKPOINT, WEIGHTS, RESULT, RECORDS)
_DERIVED = (_EVENTS, _EMBEDDING, FEATURES, EVALUATION, ONNX)


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
