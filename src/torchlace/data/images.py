"""Labelled images, sets of them, and how they are split and brought to a device in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchlace._checks import check_count, check_number
from torchlace.data.decode import DataError


@runtime_checkable
class Images(Protocol):
    """Labelled images of one shape.

    Attributes:
        labels: class of every image, (N,), int64, on the CPU.
    """

    labels: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        ...

    def __len__(self) -> int: ...

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8, on the CPU."""
        ...


class Labelled:
    """Length and description of images, in memory or in files."""

    labels: Tensor
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)}, shape={self.shape})"


class MemoryImages(Labelled):
    """Images held in memory.

    Args:
        images: (N, C, H, W), uint8.
        labels: (N,), any integer type.

    Example:
        >>> images = MemoryImages(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
        >>> images.batch(torch.tensor([0, 2])).shape
        torch.Size([2, 3, 8, 8])
    """

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise DataError(
                f"images must be uint8 of shape (N, C, H, W), got {images.dtype} "
                f"{tuple(images.shape)}"
            )
        if labels.shape != images.shape[:1] or labels.is_floating_point():
            raise DataError(
                f"labels must be integers of shape ({images.shape[0]},), one for each image, got "
                f"{labels.dtype} {tuple(labels.shape)}"
            )
        self.images = images.contiguous()
        self.labels = labels.to(torch.int64)
        channels, height, width = images.shape[1:]
        self.shape = channels, height, width

    @property
    def nbytes(self) -> int:
        """Bytes that the images take."""
        return self.images.nbytes

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8."""
        return self.images[indices]


@dataclass(frozen=True)
class ImageData:
    """A set of images to train and to test on.

    Attributes:
        name: what it is called.
        train: the images to train on; validation images are drawn from these.
        test: the images to test on.
        class_names: a name for each label.
        mirror: whether a mirrored image still shows its class; False for digits.
        digest: of images and labels, whatever their order. Of streamed files it covers their
            names, sizes and labels instead, since reading them all would take too long. A
            registered set may leave it out: it is computed when the set is loaded.
        skipped: files that were left out because they can't be read, with the reason.
        drawn: whether the test images were drawn from all, where the source doesn't say which they
            are. Of a source that has changed, others are drawn.
        resized: which image files were brought to another size than their own, in a sentence; empty
            if all kept theirs or a size was asked for.
    """

    name: str
    train: Images
    test: Images
    class_names: tuple[str, ...]
    mirror: bool = True
    digest: str = ""
    skipped: tuple[str, ...] = ()
    drawn: bool = False
    resized: str = ""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return self.train.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.train.shape[1:]

    def summary(self) -> dict[str, Any]:
        """Names, shape, digest and counts, the latter also of every class in its order."""
        train, test = (
            tuple(torch.bincount(part.labels, minlength=self.num_classes).tolist())
            for part in (self.train, self.test)
        )
        return {
            **{"name": self.name, "train": len(self.train), "test": len(self.test)},
            **{"shape": self.train.shape, "class_names": self.class_names},
            **{"train_counts": train, "test_counts": test, "digest": self.digest},
        }


def image_batches(
    images: Images, parts: Sequence[Tensor], device: torch.device, workers: int = 0
) -> Iterator[Tensor]:
    """The images of each part as one batch, uint8, on a device.

    Args:
        images: a set of images.
        parts: which images make up each batch, as indices.
        device: where the batches go.
        workers: processes that decode, beside this one.

    Example:
        >>> images = MemoryImages(torch.zeros(5, 3, 8, 8, dtype=torch.uint8), torch.arange(5))
        >>> parts = torch.arange(5).split(4)
        >>> [len(batch) for batch in image_batches(images, parts, torch.device("cpu"))]
        [4, 1]
    """
    loader = DataLoader(
        _Decoded(images, parts),
        batch_size=None,
        num_workers=workers,
        pin_memory=device.type == "cuda",
    )
    for batch in loader:
        yield batch.to(device, non_blocking=True)


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of all but a fraction of every class, and of that, which is held out; sorted.

    A class with two or more samples has at least one in each part; a single sample is not held
    out. The choice depends on labels, fraction and seed alone: it is made by integer arithmetic,
    not by a library's random generator, whose stream may change with its version.

    Args:
        labels: class of every sample, (N,).
        fraction: what to hold out, in (0, 1).
        seed: another seed, another choice.

    Example:
        >>> rest, held_out = stratified_split(torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 0.25, seed=0)
        >>> rest.tolist(), held_out.tolist()
        ([0, 1, 3, 5, 6, 7], [2, 4])
    """
    check_number("fraction", fraction, 0, 1)
    check_count("seed", seed, low=0)
    if labels.dim() != 1 or labels.is_floating_point():
        raise DataError(
            f"labels must be integers of shape (N,), got {labels.dtype} {tuple(labels.shape)}"
        )
    _, dense, counts = np.unique(labels.cpu().numpy(), return_inverse=True, return_counts=True)
    order = np.lexsort((scatter(len(dense), seed), dense))
    rank = np.empty(len(dense), np.int64)
    starts = np.cumsum(counts) - counts
    rank[order] = np.arange(len(dense)) - starts[dense[order]]
    held = torch.from_numpy(rank < _held_out(counts, fraction)[dense])
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def scatter(count: int, seed: int) -> npt.NDArray[np.uint64]:
    """A pseudo-random 64-bit number for each of 0..count-1: SplitMix64 of seed and index."""
    start = np.uint64(_mix(np.array([seed % 2**64], np.uint64))[0])
    return _mix(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + start)


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _held_out(counts: npt.NDArray[np.int64], fraction: float) -> npt.NDArray[np.int64]:
    """How many of each class to hold out: by largest remainder, so that the total is right."""
    quota = counts * fraction
    held = np.floor(quota).astype(np.int64)
    missing = int(np.floor(quota.sum() + 0.5)) - int(held.sum())
    held[np.argsort(held - quota, kind="stable")[:missing]] += 1
    bounded: npt.NDArray[np.int64] = np.minimum(np.maximum(held, 1), counts - 1)
    return bounded


class _Decoded(Dataset[Tensor]):
    """Whole batches, decoded in worker processes."""

    def __init__(self, images: Images, parts: Sequence[Tensor]) -> None:
        self.images, self.parts = images, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, item: int) -> Tensor:
        return self.images.batch(self.parts[item])
