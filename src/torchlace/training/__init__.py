"""Configuration, training loop, run directories."""

from torchlace.runs import Run, RunError, TrainConfig, make_classifier
from torchlace.training.loop import train
from torchlace.training.progress import InterruptedRun
from torchlace.training.reporting import Reporter, Silent

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
