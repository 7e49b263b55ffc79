"""Checks of what users pass in, with errors that say what came, what was expected and what to do.

Checks of shapes and types are free and always on. Checks of *values* (features that are NaN or too
large, labels out of range, class weights) need the numbers on the host, which makes a GPU wait, so
by default they run on the CPU only; :func:`checks` switches them on or off everywhere.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from torchlace._torch import transformed
from torchlace._values import check_choice as check_choice
from torchlace._values import check_count as check_count
from torchlace._values import check_number as check_number

_mode: bool | Literal["auto"] = "auto"


@contextmanager
def checks(mode: bool | Literal["auto"]) -> Iterator[None]:
    """Switch the checks of values on (``True``), off (``False``) or back to ``"auto"`` in a block.

    ``"auto"``, the default, checks tensors on the CPU and trusts those on an accelerator. Inside
    ``torch.compile``, ``torch.export`` and ``torch.func`` transforms nothing is ever checked.

    Example:
        >>> import torch, torchlace as tl
        >>> head = tl.Softmax(4, 3)
        >>> with tl.checks(False):
        ...     _ = head(torch.full((1, 4), torch.nan))
    """
    global _mode
    if mode not in (True, False, "auto"):
        raise ValueError(f'mode must be True, False or "auto", got {mode!r}')
    before, _mode = _mode, mode
    try:
        yield
    finally:
        _mode = before


def check_features(features: Tensor, width: int, largest: float = math.inf, why: str = "") -> None:
    """Raise unless ``features`` is floating point, (..., width), and finite up to ``largest``.

    ``why`` ends the sentence that names ``largest``.
    """
    check_feature_shape(features, width, leading=True)
    size = largest_seen(features)
    if size < math.inf and size <= largest:
        return
    sizes = features.detach().abs().amax(dim=-1).flatten()
    if not size < math.inf:
        bad = (~torch.isfinite(sizes)).nonzero().flatten().tolist()
        raise ValueError(
            f"features hold NaN or infinite values in {len(bad)} of {len(sizes)} rows (first "
            f"row {bad[0]}); the network diverged or its input was not finite: lower the learning "
            "rate, clip gradients or look at the data"
        )
    bad = (sizes > largest).nonzero().flatten().tolist()
    raise ValueError(
        f"features are as large as {size:.2g}, too large in {len(bad)} of {len(sizes)} rows "
        f"(first row {bad[0]}): {largest:.2g} is the most{why}; the network diverged or its input "
        "was not scaled: normalise the features, lower the learning rate or clip gradients"
    )


def largest_seen(values: Tensor) -> float:
    """The largest absolute entry, NaN where there is one, 0 where values are not looked at."""
    if not _values_visible(values) or values.numel() == 0:
        return 0.0
    return max(abs(end.item()) for end in torch.aminmax(values.detach()))


def check_feature_shape(features: Tensor, width: int, *, leading: bool = False) -> None:
    """Raise unless ``features`` is a floating-point (N, width) matrix.

    With ``leading`` there may be any number of dimensions before the last, but at least one.
    """
    if not isinstance(features, Tensor):
        raise TypeError(f"features must be a torch.Tensor, got {type(features).__name__}")
    if not features.is_floating_point():
        raise TypeError(
            f"features must be floating point, got {features.dtype}; convert with features.float()"
        )
    too_many = features.dim() > 2 and not leading
    if features.dim() < 2 or too_many or features.shape[-1] != width:
        more = "the features come last" if leading else "other dimensions are flattened first"
        raise ValueError(
            f"features must have shape (N, {width}), got {tuple(features.shape)}; the width is the "
            f"in_features of the head or background, and {more}"
        )


def check_targets(targets: Tensor, shape: tuple[int, ...], classes: int, ignore_index: int) -> None:
    """Raise unless ``targets`` holds class indices below ``classes``, in this shape."""
    check_target_shape(targets, *shape)
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, numbers.Integral):
        raise TypeError(f"ignore_index must be an integer, got {ignore_index!r}")
    if _values_visible(targets):
        wrong = targets[((targets < 0) | (targets >= classes)) & (targets != ignore_index)]
        if len(wrong):
            raise ValueError(
                f"targets must lie in 0..{classes - 1} or equal ignore_index={ignore_index}, got "
                f"{wrong.unique().tolist()[:5]}; is num_classes={classes} right, and do labels "
                "start at 0?"
            )


def check_target_shape(targets: Tensor, *shape: int) -> None:
    """Raise unless ``targets`` holds integers in this shape."""
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a torch.Tensor, got {type(targets).__name__}")
    if targets.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        raise TypeError(
            f"targets must be class indices of an integer type, got {targets.dtype}: use "
            "targets.argmax(dim=1) of class probabilities, or targets.long()"
        )
    if targets.shape != shape:
        raise ValueError(
            f"targets must have shape {tuple(shape)}, one label for each row of features, got "
            f"{tuple(targets.shape)}"
        )


def check_probabilities(targets: Tensor, shape: tuple[int, ...]) -> None:
    """Raise unless ``targets`` holds class probabilities in this shape: rows that sum to 1."""
    if targets.shape != shape:
        raise ValueError(
            f"targets that are class probabilities must have shape {tuple(shape)}, got "
            f"{tuple(targets.shape)}"
        )
    if not _values_visible(targets) or targets.numel() == 0:
        return
    rows = targets.detach().flatten(0, -2)
    off = (rows.sum(dim=1, dtype=torch.float64) - 1).abs()
    close = off <= 0.01  # what half precision rounds; NaN isn't
    bad = (~(close & (rows >= 0).all(dim=1))).nonzero().flatten().tolist()
    if bad:
        raise ValueError(
            f"targets hold no class probabilities in {len(bad)} of {len(rows)} rows (first row "
            f"{bad[0]}: {[round(value, 4) for value in rows[bad[0]].tolist()[:5]]}): their entries "
            "must be finite, not negative and sum to 1"
        )


def check_mixing(weight: Tensor | float, shape: tuple[int, ...]) -> None:
    """Raise unless ``weight`` is a share in [0, 1], or a tensor of one or one for each sample."""
    if not isinstance(weight, Tensor):
        check_number("weight", weight, 0, 1, closed=True)
        return
    if not weight.is_floating_point():
        raise TypeError(f"weight of Mixed must be floating point, got {weight.dtype}")
    if weight.shape not in (torch.Size(()), torch.Size(shape)):
        raise ValueError(
            f"weight of Mixed must be one number or have shape {tuple(shape)}, one for each "
            f"sample, got {tuple(weight.shape)}"
        )
    if _values_visible(weight) and not ((weight >= 0) & (weight <= 1)).all():
        raise ValueError(
            "weight of Mixed must lie in [0, 1], the share of the first label, got "
            f"{weight.min().item():.3g} to {weight.max().item():.3g}"
        )


def check_class_weight(
    weight: Tensor | None, classes: int, largest: float = math.inf, *, shared: bool = False
) -> None:
    """Raise unless ``weight`` is None or one number from 0 to ``largest`` for each class.

    Where the loss of a sample is ``shared`` among classes, they differ by no larger a factor.
    """
    if weight is None:
        return
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(
            "weight must be a floating-point torch.Tensor with one entry for each class"
        )
    if weight.shape != (classes,):
        raise ValueError(f"weight must have shape ({classes},), got {tuple(weight.shape)}")
    if not _values_visible(weight):
        return
    low, high = (end.item() for end in torch.aminmax(weight.detach()))
    if not (low >= 0 and high < math.inf and high <= largest):
        wrong = low if low < 0 else high
        raise ValueError(
            f"weight must lie in [0, {largest:.2g}], got {wrong:.2g}: divide the weights by their "
            "mean, and give a class without samples 0"
        )
    least = torch.where(weight > 0, weight, high).min().item()
    if shared and high > largest * least:
        raise ValueError(
            f"weight goes from {least:.2g} to {high:.2g}, and with label smoothing the loss of a "
            f"rare sample would count {high / least:.2g} times: bring the weights within a factor "
            f"of {largest:.2g}, or leave out label_smoothing"
        )


def check_classes(count: int) -> int:
    """Return ``count`` if it is a number of classes, two or more, or raise with what to do."""
    try:
        return check_count("num_classes", count, 2)
    except ValueError as error:
        raise ValueError(
            f"{error}: with one class there is nothing to tell apart, and the cross-entropy is "
            "always 0. To tell one class from everything else, give two (the class, the rest), or "
            "use torchlace.detection (ACEDetector, OpenSet)"
        ) from None


def _values_visible(tensor: Tensor) -> bool:
    if torch.compiler.is_compiling() or tensor.device.type == "meta":
        return False
    if transformed(tensor):
        return False
    return tensor.device.type == "cpu" if _mode == "auto" else _mode
