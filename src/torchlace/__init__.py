"""Learnable Adaptive Cosine Estimator (LACE) and its relatives, as PyTorch layers."""

from torchlace import backgrounds, functional, heads
from torchlace._checks import checks
from torchlace.backgrounds import BackgroundNorm
from torchlace.heads import (
    AMC,
    LACE,
    AdaCos,
    ArcFace,
    Center,
    CosFace,
    Joint,
    NormFace,
    Softmax,
    SphereFace,
)

__version__ = "0.1.0"

__all__ = [
    "AMC",
    "LACE",
    "AdaCos",
    "ArcFace",
    "BackgroundNorm",
    "Center",
    "CosFace",
    "Joint",
    "NormFace",
    "Softmax",
    "SphereFace",
    "backgrounds",
    "checks",
    "functional",
    "heads",
]
