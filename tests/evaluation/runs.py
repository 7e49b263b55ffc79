"""Small finished runs, trained once for all tests of a process."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from torchlace import heads
from torchlace.training import TrainConfig, train

CASES = {name: (name, {}) for name in heads.names()} | {
    "one-vs-all": ("lace", {"background": "one-vs-all"}),
    "one-vs-all-learned": ("lace", {"background": "one-vs-all-learned"}),
    "one-vs-one": ("lace", {"background": "one-vs-one"}),
    "low-rank": ("lace", {"background": "low-rank", "background_options": {"rank": 8}}),
    "low-rank-learned": (
        "lace",
        {"background": "low-rank-learned", "background_options": {"rank": 8}},
    ),
    "no-mean": ("lace", {"mean": False}),
    "no-covariance": ("lace", {"covariance": False}),
    "neither": ("lace", {"mean": False, "covariance": False}),
    "in-features": ("lace", {"signature_space": "features"}),
    "nonnegative": ("lace", {"nonnegative": True}),
    "joint": ("joint", {}),
}


@functools.cache
def folder():
    path = Path(tempfile.mkdtemp(prefix="torchlace-runs-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def trained(name, epochs=2):
    """The path of a run on digits; tests that change it take a copy."""
    head, options = CASES[name]
    if head == "joint" and head not in heads.names():
        heads.register(head, joint)
    path = folder() / f"{name}-{epochs}"
    config = TrainConfig(
        head=head, head_options=options, epochs=epochs, batch_size=128, device="cpu"
    )
    train(config, path)
    return path


def copied(name, place):
    """A copy of a run, without what was examined of it."""
    path = Path(place) / name
    shutil.copytree(
        trained(name),
        path,
        ignore=shutil.ignore_patterns("features*", "evaluation*", "embedding*"),
    )
    return path


def joint(in_features, num_classes):
    parts = {
        "softmax": heads.Softmax(in_features, num_classes),
        "lace": heads.LACE(in_features, num_classes),
    }
    return heads.Joint(parts, {"softmax": 0.3, "lace": 0.7})
