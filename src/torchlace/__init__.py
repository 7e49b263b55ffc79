"""Learnable Adaptive Cosine Estimator (LACE) and its relatives, as PyTorch layers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from torchlace.models import Classifier

__version__ = "0.1.0"

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
    "NormFace",
    "Softmax",
    "SphereFace",
    "backgrounds",
    "checks",
    "functional",
    "heads",
]

_ELSEWHERE = {
    "BackgroundNorm": "backgrounds",
    "Classifier": "models",
    "checks": "_checks",
    "backgrounds": "",
    "data": "",
    "detection": "",
    "estimators": "",
    "evaluation": "",
    "experiments": "",
    "export": "",
    "functional": "",
    "heads": "",
    "inspection": "",
    "models": "",
    "report": "",
    "runs": "",
    "training": "",
}


def __getattr__(name: str) -> Any:
    # Names are imported when first used: the command line answers --help without loading torch.
    if name not in _ELSEWHERE and name not in __all__:
        raise AttributeError(f"module 'torchlace' has no attribute {name!r}")
    module = _ELSEWHERE.get(name, "heads")
    if not module:
        return import_module(f"torchlace.{name}")
    return getattr(import_module(f"torchlace.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ELSEWHERE, *__all__})
