"""Where to compute, for arrays that lie on no device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def find_device(name: str | torch.device, rows: Any = None) -> torch.device:
    """The device of this name: ``auto`` is where a tensor lies, else CUDA if there is any.

    Example:
        >>> find_device("auto", torch.zeros(2))
        device(type='cpu')
    """
    if name == "auto":
        if isinstance(rows, Tensor):
            return rows.device
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f'unknown device {name!r}: use device="cpu", "cuda" or "auto"') from None
    if device.type == "mps":
        raise ValueError('statistics are kept in fp64, which mps lacks: use device="cpu"')
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError('there is no CUDA device here: use device="cpu"')
    return device
