"""Pure tensor mathematics, without state."""

from torchlace.functional.chunked import chunked_cross_entropy, split_logits
from torchlace.functional.class_moments import (
    ClassMoments,
    empty_class_moments,
    signal,
    update_class_moments,
)
from torchlace.functional.cross_entropy import cross_entropy, reduce
from torchlace.functional.geometry import ace, angle, cosine, cosine_logits, unit
from torchlace.functional.gradients import LACEGradients, lace_gradients
from torchlace.functional.losses import (
    additive_angular_margin,
    additive_cosine_margin,
    amc_loss,
    center_loss,
    multiplicative_angular_margin,
)
from torchlace.functional.moments import Moments, empty_moments, update_moments
from torchlace.functional.scale import (
    adacos_scale,
    auto_scale,
    fit_temperature,
    loss_floor,
    max_probability,
    scale_for,
)
from torchlace.functional.targets import Mixed
from torchlace.functional.whitening import (
    cholesky,
    cholesky_whitening,
    ledoit_wolf,
    newton_schulz_whitening,
    shrink,
)

__all__ = [
    "ClassMoments",
    "LACEGradients",
    "Mixed",
    "Moments",
    "ace",
    "adacos_scale",
    "additive_angular_margin",
    "additive_cosine_margin",
    "amc_loss",
    "angle",
    "auto_scale",
    "center_loss",
    "cholesky",
    "cholesky_whitening",
    "chunked_cross_entropy",
    "cosine",
    "cosine_logits",
    "cross_entropy",
    "empty_class_moments",
    "empty_moments",
    "fit_temperature",
    "lace_gradients",
    "ledoit_wolf",
    "loss_floor",
    "max_probability",
    "multiplicative_angular_margin",
    "newton_schulz_whitening",
    "reduce",
    "scale_for",
    "shrink",
    "signal",
    "split_logits",
    "unit",
    "update_class_moments",
    "update_moments",
]
