"""Labelled images, in memory or elsewhere, and the set that a model is trained and tested on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from torchlace.data.errors import DataError


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


class MemoryImages:
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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    @property
    def nbytes(self) -> int:
        """Bytes that the images take."""
        return self.images.nbytes

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8."""
        return self.images[indices]

    def __repr__(self) -> str:
        return f"MemoryImages({len(self)}, shape={self.shape})"


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
            names, sizes and labels instead, since reading them all would take too long.
        skipped: files that were left out because they can't be read, with the reason.
        drawn: whether the test images were drawn from all, where the source doesn't say which they
            are. Of a source that has changed, others are drawn.
    """

    name: str
    train: Images
    test: Images
    class_names: tuple[str, ...]
    mirror: bool
    digest: str
    skipped: tuple[str, ...] = ()
    drawn: bool = False

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
