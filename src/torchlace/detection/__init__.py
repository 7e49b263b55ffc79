"""Detectors for pixels and features, learned targets, and rejection of what no class knows."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError(
        "torchlace.detection needs scikit-learn: pip install 'torchlace[train]'"
    ) from error

from torchlace.detection.detectors import ACEDetector, RXDetector, SMFDetector
from torchlace.detection.multiple_instance import MIACE, MISMF
from torchlace.detection.null import (
    ace_false_alarm,
    ace_threshold,
    rx_threshold,
    smf_threshold,
)
from torchlace.detection.open_set import OpenSet, separation

__all__ = [
    "MIACE",
    "MISMF",
    "ACEDetector",
    "OpenSet",
    "RXDetector",
    "SMFDetector",
    "ace_false_alarm",
    "ace_threshold",
    "rx_threshold",
    "separation",
    "smf_threshold",
]
