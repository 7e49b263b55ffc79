"""The device that a name stands for, and whether it is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchlace._text import setting
from torchlace._values import nearest


def named_device(name: str | torch.device) -> torch.device:
    """The device of this name, or an error that says what to use instead."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    try:
        device = torch.device(name)
        if device.type in here and not here[device.type]():
            raise no_device(device.type)
        if device.index is not None or device.type not in ("cpu", *here):
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        use = setting("device", "cpu")
        hint = "; did you mean 'cuda'?" if nearest(str(name), ("cuda",)) else ""
        raise ValueError(f'unknown device {name!r}: use {use}, "cuda" or "auto"{hint}') from None
    return device


def no_device(kind: str) -> ValueError:
    """The error of a machine that has no device of this kind."""
    use = setting("device", "cpu")
    return ValueError(f"there is no {kind.upper()} device here: use {use}")


def find_device(name: str | torch.device, rows: Any = None) -> torch.device:
    """The device of this name for work in fp64: ``auto`` is where a tensor lies, else CUDA."""
    if name == "auto" and isinstance(rows, Tensor):
        return rows.device
    if str(name) == "mps":
        cpu = setting("device", "cpu")
        raise ValueError(f"statistics are kept in fp64, which mps lacks: use {cpu}")
    return named_device(name)
