"""Batches of a set's images, on the device that computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from torchlace.data.images import Images


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
        >>> from torchlace.data import MemoryImages
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


class _Decoded(Dataset[Tensor]):
    """Whole batches, decoded in worker processes."""

    def __init__(self, images: Images, parts: Sequence[Tensor]) -> None:
        self.images, self.parts = images, parts

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, item: int) -> Tensor:
        return self.images.batch(self.parts[item])
