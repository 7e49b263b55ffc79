"""A cube of which a block of rows is read at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from torchlace._sklearn import Array


class Cube:
    """An image (H, W, bands), or pixels (N, bands), in a file: ``cube[first:last]`` reads rows.

    Pixels that are NaN in every band, or that the file marks as without data in any, are masked.

    Args:
        path: of the file.
        shape: of the image.
        dtype: of what is read.
        load: reads the rows from a first to before a last.
        files: all that the image is made of.

    Example:
        >>> import tempfile
        >>> from torchlace.detection import open_cube
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/cube.npy", np.arange(24).reshape(4, 3, 2))
        ...     cube = open_cube(f"{folder}/cube.npy")
        ...     cube.shape, cube[2:3].tolist(), cube.keep(np.array([1]))[3:].tolist()
        ((4, 3, 2), [[[12, 13], [14, 15], [16, 17]]], [[[19], [21], [23]]])
    """

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: Any,
        load: Callable[[int, int], Array],
        files: list[Path],
    ) -> None:
        self.path, self.shape, self.dtype, self.files = path, shape, np.dtype(dtype), files
        self._load = load
        self._bands: Any = None
        if len(shape) not in (2, 3) or self.dtype.kind not in "iuf" or not math.prod(shape):
            raise ValueError(
                f"{path}: a cube is an array of real numbers of shape (H, W, bands) or (N, bands), "
                f"got {self.dtype} {shape}"
            )

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(self.shape[0])
        part = self._load(start, max(start, stop))
        return _mask_empty(part if self._bands is None else part[..., self._bands])

    def keep(self, bands: Array) -> Cube:
        """The same cube with some of its bands only."""
        shape = (*self.shape[:-1], len(bands))
        chosen = Cube(self.path, shape, self.dtype, self._load, self.files)
        chosen._bands = bands if self._bands is None else self._bands[bands]
        return chosen

    def identity(self) -> list[list[Any]]:
        """Name, size and time of change of its files, which tell whether it is still the same."""
        inside = [
            [path] if path.is_file() else sorted(filter(Path.is_file, path.rglob("*")))
            for path in self.files
        ]
        facts = [(path, path.stat()) for paths in inside for path in paths]
        return [[path.name, stat.st_size, stat.st_mtime_ns] for path, stat in facts]


class Slabs:
    """Reads rows where only whole chunks of them can be decompressed, each chunk once."""

    def __init__(self, load: Callable[[int, int], Array], step: int, height: int) -> None:
        self.load, self.step, self.height = load, step, height
        self.first, self.held = -1, np.empty(0)

    def __call__(self, start: int, stop: int) -> Array:
        """The rows from a first to before a last."""
        parts = []
        while start < stop:
            first = start // self.step * self.step
            if first != self.first:
                self.held = np.empty(0)
                self.held = self.load(first, min(first + self.step, self.height))
                self.first = first
            last = min(stop, first + self.step)
            parts.append(self.held[start - first : last - first])
            start = last
        if any(map(np.ma.isMaskedArray, parts)):
            whole: Array = np.ma.concatenate(parts)  # type: ignore[no-untyped-call]
            return whole
        return np.concatenate(parts)


def read_rows(
    path: Path,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    axis: int,
    start: int,
    stop: int,
) -> Array:
    """Some positions of one axis of an array that a file holds in C order from ``offset`` on."""
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    part = np.empty((outer, (stop - start) * inner), dtype)
    with path.open("rb") as file:
        for number, run in enumerate(part):
            file.seek(offset + (number * shape[axis] + start) * inner * dtype.itemsize)
            if file.readinto(run.view(np.uint8).data) < run.nbytes:
                raise ValueError(
                    f"{path} ends within rows {start} to {stop - 1}: it was cut short while it was "
                    "read"
                )
    return part.reshape(*shape[:axis], stop - start, *shape[axis + 1 :])


def _mask_empty(part: Array) -> Array:
    """Mask the pixels that are NaN in every band too."""
    values, mask = np.ma.getdata(part), np.ma.getmask(part)
    empty: Any = np.isnan(values[..., 0])
    if empty.any():
        empty = np.isnan(values).all(axis=-1)
    if not empty.any():
        return part
    return np.ma.array(values, mask=np.broadcast_to(mask | empty[..., None], values.shape))
