"""Pixels of any kind, in memory or in a file, some rows of their image at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from torchlace._sklearn import Array, as_tensor
from torchlace._text import listed

Rows = Array | Tensor
T = TypeVar("T")
# Bytes, in double precision, of the pixels that are read at a time: few passes over a GPU's queue.
_BLOCK_BYTES = {"cpu": 1 << 25, "cuda": 1 << 28}


class BandError(ValueError):
    """Bands that nothing can be computed from: their numbers go where ``problem`` says {bands}."""

    def __init__(self, problem: str, bands: Array) -> None:
        super().__init__(f"{problem.format(bands=listed(bands.tolist()))}: X[..., keep]")
        self.problem, self.bands = problem, bands

    def __reduce__(self) -> tuple[Any, ...]:
        # It may come from another process.
        return type(self), (self.problem, self.bands)


class Block(NamedTuple):
    """Some whole rows of an image."""

    rows: slice
    values: Rows
    """(H, W, bands)."""
    known: Array | None
    """Which pixels have data, (H, W), if not all do."""

    def pixels(self, columns: slice = slice(None)) -> Rows:
        """Those that have data, of some columns, (N, bands)."""
        values = self.values[:, columns]
        if self.known is None:
            # Not -1, which says nothing where there are no bands.
            return values.reshape(values.shape[0] * values.shape[1], values.shape[2])
        known = self.known[:, columns]
        return values[torch.from_numpy(known) if isinstance(values, Tensor) else known]


class Pixels:
    """An image (H, W, bands), or pixels (N, bands) as an image of one column, in blocks of rows.

    Args:
        source: what has such a shape, and gives arrays or tensors for slices of its first axis;
            masked pixels have no data.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.shape = tuple(source.shape[:-1])
        self.bands = int(source.shape[-1])
        self.height = int(self.shape[0])
        self.width = int(self.shape[1]) if len(self.shape) == 2 else 1
        self.dtype = scoring_dtype(source)

    def ranges(self, device: torch.device, start: int = 0, least: int = 1) -> Iterator[slice]:
        """What rows to look at together, from ``start`` on."""
        size = _BLOCK_BYTES.get(device.type, _BLOCK_BYTES["cpu"])
        pixels = size // (8 * max(self.bands, 1))
        step = max(pixels // max(self.width, 1), least)
        return (
            slice(first, min(first + step, self.height))
            for first in range(start, self.height, step)
        )

    def blocks(self, device: torch.device, start: int = 0) -> Iterator[Block]:
        """All rows from ``start`` on; read, or sent to a GPU, while those before are looked at."""
        there = isinstance(self.source, (Tensor, np.ndarray))
        if device.type != "cuda" or isinstance(self.source, Tensor):
            blocks = map(self.read, self.ranges(device, start))
            return blocks if there else _ahead(blocks)
        side, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)

        def send(rows: slice) -> Block:
            block = self.read(rows)
            host = as_tensor(np.asarray(block.values), _real(self.dtype)).pin_memory()
            with torch.cuda.stream(side):
                values = host.to(device, non_blocking=True)
            # Its memory is not to be reused before the main stream has looked at it too.
            values.record_stream(main)
            side.synchronize()
            return block._replace(values=values)

        return _ahead(map(send, self.ranges(device, start)))

    def read(self, rows: slice) -> Block:
        """Some rows."""
        part = self._rows(rows)
        known = None
        if isinstance(part, np.ma.MaskedArray):
            mask = np.ma.getmaskarray(part).any(axis=-1).reshape(-1, self.width)
            known = ~mask if mask.any() else None
            part = part.data
        return Block(rows, part.reshape(part.shape[0], self.width, self.bands), known)

    def _rows(self, rows: slice) -> Any:
        part = self.source[rows]
        return part.compute() if is_lazy(part) else part

    def check_finite(self, names: str = "pixels") -> None:
        """Raise naming the pixels, by row and column in an image, and bands that are not finite."""
        bands, first = np.zeros(self.bands, dtype=bool), None
        pixels = many = 0
        for rows in self.ranges(torch.device("cpu")):
            block = self.read(rows)
            values = block.values
            good = torch.isfinite(values) if isinstance(values, Tensor) else np.isfinite(values)
            bad = np.asarray(~good.cpu() if isinstance(good, Tensor) else ~good)
            if block.known is not None:
                bad &= block.known[..., None]
            places = np.argwhere(bad.any(axis=-1))
            bands |= bad.any(axis=(0, 1))
            many += bad[..., 0].size if block.known is None else int(block.known.sum())
            pixels += len(places)
            if first is None and len(places):
                first = (int(places[0, 0]) + rows.start, int(places[0, 1]))
        if first is None:
            return
        where = f"(row, column) {first}" if len(self.shape) == 2 else f"{first[0]}"
        problem = f"NaN or infinite values in {pixels} of {many} {names}, the first at {where}"
        if bands.all():
            raise ValueError(
                f"{problem}, and in every band: leave these pixels out, or fill them in"
            )
        raise BandError(
            f"{problem}, in {bands.sum()} of {self.bands} bands: {{bands}}. Leave the pixels out, "
            "or drop the bands from pixels and target alike",
            np.flatnonzero(bands),
        )

    def why_empty(self) -> ValueError:
        """The error where no pixel has data, with the bands that all of them lack."""
        parts = (self._rows(rows) for rows in self.ranges(torch.device("cpu")))
        missing = [np.ma.getmaskarray(part).reshape(-1, self.bands).all(axis=0) for part in parts]
        bands = np.flatnonzero(np.all(missing, axis=0))
        if len(bands) == self.bands:
            return ValueError("there is no data here: every pixel is masked, or NaN in every band")
        return BandError(
            "every pixel is without data in some band"
            + (", and all are in {bands}" if len(bands) else ""),
            bands,
        )


def _ahead(parts: Iterator[T]) -> Iterator[T]:
    """The same parts, each made in a thread while the one before is used."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, parts, None)
        while (part := following.result()) is not None:
            following = thread.submit(next, parts, None)
            yield part


def batches(
    rows: Rows, size: int, device: torch.device, dtype: torch.dtype = torch.float64
) -> Iterator[Tensor]:
    """Slices of ``rows`` on the device."""
    single = torch.float32 in (dtype, scoring_dtype(rows))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        if not isinstance(part, Tensor):
            part = as_tensor(part, _real(torch.float32 if single else torch.float64))
        # First the way, then the precision: single takes half as long to go.
        yield part.to(device).to(dtype)


def is_lazy(source: Any) -> bool:
    """Whether it is a ``dask.array``, whose chunks may lie on other machines."""
    return type(source).__module__.startswith("dask.array")


def scoring_dtype(rows: Any) -> torch.dtype:
    """Single precision for what comes in single or half precision, else double."""
    real = rows.dtype.is_floating_point if isinstance(rows, Tensor) else rows.dtype.kind == "f"
    return torch.float32 if real and rows.dtype.itemsize <= 4 else torch.float64


def _real(dtype: torch.dtype) -> type[np.floating[Any]]:
    return np.float32 if dtype == torch.float32 else np.float64
