"""Labelled images, in memory or decoded on demand; sets of them, and how they are split."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchlace._checks import check_count, check_number
from torchlace.data.decode import BadImagesError, DataError, decode_image


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


class _Labelled:
    """Length and description of images, in memory or in files."""

    labels: Tensor
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)}, shape={self.shape})"


class MemoryImages(_Labelled):
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


class FileImages(_Labelled, Dataset[tuple[Tensor, int]]):
    """Labelled image files, decoded on demand; a dataset for :class:`torch.utils.data.DataLoader`.

    Args:
        paths: the files.
        labels: (N,), any integer type.
        channels: 1 for grey, 3 for RGB.
        size: height and width that every image is brought to, see :func:`decode_image`.
        skip_bad: what happens to a file that was readable when it was listed and no longer is:
            False raises; True warns and shows the next readable image of the same class instead.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (40, 30)).save(f"{folder}/a.png")
        ...     images = FileImages([f"{folder}/a.png"], torch.tensor([7]), 3, (16, 16))
        ...     pixels, label = images[0]
        >>> pixels.shape, label
        (torch.Size([3, 16, 16]), 7)
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        labels: Tensor,
        channels: int,
        size: tuple[int, int],
        *,
        skip_bad: bool = False,
    ) -> None:
        if labels.shape != (len(paths),):
            raise DataError(
                f"labels must have shape ({len(paths)},), one for each file, got "
                f"{tuple(labels.shape)}"
            )
        self.paths = tuple(Path(path) for path in paths)
        self.labels = labels.to(torch.int64)
        self.shape = (channels, *size)
        self.skip_bad = skip_bad

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """The image, (C, H, W), uint8, and its label."""
        label = int(self.labels[index])
        try:
            return self._decode(index), label
        except BadImagesError as error:
            if not self.skip_bad:
                raise
            warnings.warn(f"another image in place of {error.bad[0]}", UserWarning, stacklevel=2)
        return self._stand_in(index, label), label

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8."""
        out = torch.empty(len(indices), *self.shape, dtype=torch.uint8)
        for place, index in zip(out, indices.tolist(), strict=True):
            place.copy_(self[index][0])
        return out

    def _decode(self, index: int) -> Tensor:
        return decode_image(self.paths[index], channels=self.shape[0], size=self.shape[1:])

    def _stand_in(self, index: int, label: int) -> Tensor:
        same = (self.labels == label).nonzero().flatten().tolist()
        for other in sorted(same, key=lambda each: each <= index):  # those that follow come first
            try:
                return self._decode(other)
            except BadImagesError:
                continue
        raise DataError(f"no readable image is left of class {label}")


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


def subset(images: Images, indices: Tensor) -> Images:
    """Some of the images, held in the same way."""
    labels = images.labels[indices]
    if isinstance(images, FileImages):
        paths = [images.paths[index] for index in indices.tolist()]
        channels, *size = images.shape
        return FileImages(paths, labels, channels, (size[0], size[1]), skip_bad=images.skip_bad)
    return MemoryImages(images.batch(indices), labels)


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Hold out a fraction of every class.

    A class with two or more samples has at least one in each part; a single sample is not held
    out. The choice depends on labels, fraction and seed alone: it is made by integer arithmetic,
    not by a library's random generator, whose stream may change with its version.

    Args:
        labels: class of every sample, (N,).
        fraction: what to hold out, in (0, 1).
        seed: another seed, another choice.

    Returns:
        Indices of the rest and of the held-out samples, both sorted.

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
