"""Detectors for pixels and features, learned targets, and rejection of what no class knows."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "torchlace.detection needs scikit-learn: pip install 'torchlace[estimators]'"
    ) from error

from torchlace.detection.cubes import Cube, open_cube
from torchlace.detection.detectors import ACEDetector, RXDetector, SMFDetector
from torchlace.detection.multiple_instance import MIACE, MISMF
from torchlace.detection.null import (
    ace_false_alarm,
    ace_threshold,
    rx_threshold,
    smf_threshold,
)
from torchlace.detection.open_set import OpenSet
from torchlace.detection.scores import SCORES, Score
from torchlace.detection.separation import (
    aupr,
    auroc,
    conformal_threshold,
    fpr_at_recall,
    samples_needed,
    separation,
    separations,
)

__all__ = [
    "MIACE",
    "MISMF",
    "SCORES",
    "ACEDetector",
    "Cube",
    "OpenSet",
    "RXDetector",
    "SMFDetector",
    "Score",
    "ace_false_alarm",
    "ace_threshold",
    "aupr",
    "auroc",
    "conformal_threshold",
    "fpr_at_recall",
    "open_cube",
    "rx_threshold",
    "samples_needed",
    "separation",
    "separations",
    "smf_threshold",
]
