"""Sizes that files claim, looked at before any memory is taken for them."""

from __future__ import annotations

import math
import os
from typing import IO

from numpy.lib import format as npy


def require_memory(
    source: object,
    needed: int,
    failure: type[Exception] = ValueError,
    *,
    advice: str = "if it should be smaller than that, it is damaged",
) -> None:
    """Raise where ``source`` would take more bytes than this machine has.

    Args:
        source: what needs them.
        needed: how many.
        failure: the error to raise.
        advice: what to do then.

    Example:
        >>> require_memory("a.npz", 1000)
        >>> require_memory("a.npz", 10**18)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: a.npz would take 931,322,575 GiB of memory, this machine has ...
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise failure(
            f"{source} would take {needed / 2**30:,.0f} GiB of memory, this machine has "
            f"{there / 2**30:,.0f}; {advice}"
        )


def check_header(file: IO[bytes], size: int, name: object) -> None:
    """Raise where the header of a .npy file claims more than the file holds.

    Args:
        file: the file, at its beginning.
        size: how many bytes it has.
        name: what to call it in errors.

    Raises:
        Exception: whatever a broken header leads numpy to.

    Example:
        >>> import io
        >>> import numpy as np
        >>> file = io.BytesIO()
        >>> np.save(file, np.zeros(10**4))
        >>> _ = file.seek(0)
        >>> check_header(file, 1000, "a.npy")
        Traceback (most recent call last):
        ValueError: a.npy says that it is float64 of shape (10000,) and holds 872 bytes
    """
    reader = {(1, 0): npy.read_array_header_1_0}.get(
        npy.read_magic(file), npy.read_array_header_2_0
    )
    shape, _, kind = reader(file)
    there = size - file.tell()
    if kind.hasobject:  # of any size, and refused by all who read without pickles
        return
    if min(shape, default=0) < 0 or not kind.itemsize or math.prod(shape) * kind.itemsize > there:
        raise ValueError(
            f"{name} says that it is {kind} of shape {shape} and holds {there:,} bytes"
        )
