"""Images mixed with others of their batch, and targets that say how much of each is left."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlace.data.boxes import rectangles
from torchlace.data.decode import DataError
from torchlace.functional import Mixed


class Mixing:
    """Mix images with others of their batch, for training: by mixup or by CutMix.

    Every image is mixed with the one before it in the batch, by a share drawn evenly from 0 to 1:
    all of it (mixup; Zhang et al., 2018), or in a rectangle at a random place (CutMix; Yun et al.,
    2019). The target says how much of each image is left.

    Args:
        mixup: share of the images that are mixed as a whole.
        cutmix: share of the images that get a rectangle of another.

    Example:
        >>> mixing = Mixing(cutmix=1.0)
        >>> images, labels = torch.zeros(4, 3, 32, 32), torch.arange(4)
        >>> mixed, targets = mixing(images, labels, mixing.draw(4, images.device))
        >>> mixed.shape, targets.second
        (torch.Size([4, 3, 32, 32]), tensor([3, 0, 1, 2]))
    """

    def __init__(self, mixup: float = 0.0, cutmix: float = 0.0) -> None:
        self.mixup, self.cutmix = mixup, cutmix
        if min(mixup, cutmix) < 0 or mixup + cutmix > 1:
            raise DataError(
                "mixup and cutmix are shares of the images and together at most 1, got "
                f"{mixup:g} and {cutmix:g}"
            )

    def __call__(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Mixed]:
        """Mixed images, (N, C, H, W), and for each two labels and the share of the first."""
        kind, share = draws[:, 0], draws[:, 1]
        height, width = images.shape[-2:]
        rectangle = rectangles(draws[:, 2:], (1 - share).sqrt(), height, width)
        kept = torch.where(
            (kind < self.cutmix)[:, None, None],
            (~rectangle).to(images.dtype),
            torch.where(kind < self.cutmix + self.mixup, share, 1).to(images.dtype)[:, None, None],
        )
        mixed = torch.lerp(images.roll(1, 0), images, kept[:, None])
        return mixed, Mixed(labels, labels.roll(1), kept.mean((1, 2), dtype=torch.float32))

    def draw(
        self, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> Tensor:
        """The random numbers for ``count`` images."""
        return torch.rand(count, 4, device=device, generator=generator)

    def __repr__(self) -> str:
        return f"Mixing(mixup={self.mixup:g}, cutmix={self.cutmix:g})"
