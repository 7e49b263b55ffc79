"""Training, from a configuration to a finished run directory."""

from torchlace._reporter import Reporter
from torchlace.runs import Run, RunError, TrainConfig, make_classifier
from torchlace.training.loop import train
from torchlace.training.stopping import InterruptedRun

# A reporter that tells nobody.
Silent = Reporter

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
