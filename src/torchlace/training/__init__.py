"""Configuration, training loop, run directories."""

from torchlace.training.config import TrainConfig
from torchlace.training.loop import InterruptedRun, Reporter, Silent, make_classifier, train
from torchlace.training.rundir import Run, RunError

__all__ = [
    "InterruptedRun",
    "Reporter",
    "Run",
    "RunError",
    "Silent",
    "TrainConfig",
    "make_classifier",
    "train",
]
