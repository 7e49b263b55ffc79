"""Threads of other libraries."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch


def threads_like_torch(count: int | None = None) -> AbstractContextManager[Any]:
    """A context in which other libraries take no more threads than torch does, or than ``count``.

    Left alone they take all cores: from what runs beside, and from each other, which waiting in a
    loop makes many times slower.

    Example:
        >>> with threads_like_torch():
        ...     pass
    """
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[Any] = threadpool_limits(count or torch.get_num_threads())
    return limits
