"""Configuration, training loop, run directories."""

from torchlace.training.config import TrainConfig
from torchlace.training.loop import train
from torchlace.training.parts import make_classifier
from torchlace.training.progress import InterruptedRun
from torchlace.training.reporting import Reporter, Silent
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
