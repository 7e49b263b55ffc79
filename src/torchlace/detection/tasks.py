"""Images of ``dask.array``: the background is a map over chunks and a sum, the scores a map."""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchlace._sklearn import Array
from torchlace._torch import find_device
from torchlace.detection.background import Moments
from torchlace.detection.pixels import Block, Pixels
from torchlace.detection.scoring import score_blocks

if TYPE_CHECKING:
    from torchlace.detection.base import Detector

# Moments that one task adds up.
_TOGETHER = 8


def sum_chunks(pixels: Pixels, moments: Moments) -> Iterator[Block]:
    """Give the moments all chunks of an image, each seen where it is; no block is left to see."""
    delayed = import_module("dask").delayed
    options = moments.strips, moments.batch_size
    parts = [
        delayed(_see)(chunk, str(moments.device), *options)
        for chunk in _whole_rows(pixels.source).to_delayed().ravel()
    ]
    while len(parts) > 1:
        groups = (parts[first : first + _TOGETHER] for first in range(0, len(parts), _TOGETHER))
        parts = [delayed(_add)(group, *options) for group in groups]
    moments.merge(parts[0].compute())
    return iter(())


def map_scores(detector: Detector, pixels: Pixels) -> Any:
    """Scores as a ``dask.array`` of the same rows in its chunks, NaN where there is no data."""
    image = _whole_rows(pixels.source)
    several = detector._shape_of_scores()
    dtype = np.float32 if pixels.dtype == torch.float32 else np.float64
    last = image.ndim - 1
    return image.map_blocks(
        _score,
        detector,
        several,
        dtype=dtype,
        chunks=(*image.chunks[:-1], *((count,) for count in several)),
        drop_axis=() if several else last,
        meta=np.empty((0,) * (last + len(several)), dtype),
    )


def largest(scores: Any, targets: tuple[int, ...], rank: int) -> Array:
    """So many of the largest scores of all chunks, (rank, K), of each target by itself."""
    da = import_module("dask.array")
    rows = scores.reshape(math.prod(scores.shape) // math.prod(targets), *targets)
    found: Array = da.topk(da.where(da.isnan(rows), -np.inf, rows), rank, axis=0).compute()
    return found


def _whole_rows(image: Any) -> Any:
    return image.rechunk(dict.fromkeys(range(1, image.ndim), -1))


def _see(chunk: Any, device: str, strips: list[slice], batch_size: int) -> dict[str, Array]:
    moments = Moments(strips, batch_size, find_device(device))
    for block in Pixels(chunk).blocks(moments.device):
        moments.add(block)
    return moments.state()


def _add(states: list[dict[str, Array]], strips: list[slice], batch_size: int) -> dict[str, Array]:
    # What a task is given stays as it was: where a worker is lost, it may be asked for again.
    total = Moments(strips, batch_size, torch.device("cpu"))
    for state in states:
        total.merge(state)
    return total.state()


def _score(
    chunk: Any, detector: Detector, several: tuple[int, ...], block_info: Any = None
) -> Array:
    pixels = Pixels(chunk)
    try:
        parts = [scores for _, scores in score_blocks(detector, pixels)]
    except ValueError as error:
        first = block_info[0]["array-location"][0][0]
        raise ValueError(f"in the chunk that begins at row {first}: {error}") from None
    return np.concatenate(parts).reshape(*pixels.shape, *several)
