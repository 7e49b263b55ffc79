"""Learnable Adaptive Cosine Estimator (LACE) and its relatives, as PyTorch layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlace._registry import lazy_names

if TYPE_CHECKING:
    from torchlace import backgrounds, functional, heads
    from torchlace._checks import checks
    from torchlace._imports import import_code
    from torchlace.backgrounds import BackgroundNorm
    from torchlace.heads import (
        AMC,
        LACE,
        AdaCos,
        ArcFace,
        Center,
        CosFace,
        Joint,
        LogitNorm,
        Mixed,
        NormFace,
        Softmax,
        SphereFace,
    )
    from torchlace.models import Classifier

__version__ = "0.2.0"

__all__ = [
    "AMC",
    "LACE",
    "AdaCos",
    "ArcFace",
    "BackgroundNorm",
    "Center",
    "Classifier",
    "CosFace",
    "Joint",
    "LogitNorm",
    "Mixed",
    "NormFace",
    "Softmax",
    "SphereFace",
    "backgrounds",
    "checks",
    "functional",
    "heads",
    "import_code",
]

_PLACES = {
    "heads": [name for name in __all__ if name[0].isupper()],
    "backgrounds": ["BackgroundNorm"],
    "models": ["Classifier"],
    "_checks": ["checks"],
    "_imports": ["import_code"],
}
_PACKAGES = (
    *("backgrounds", "data", "detection", "estimators", "evaluation", "experiments"),
    *("functional", "heads", "hub", "models", "report", "runs", "training"),
)
# Names are imported when first used: the command line answers --help without loading torch.
__getattr__ = lazy_names(__name__, _PLACES, _PACKAGES)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES, *__all__})
