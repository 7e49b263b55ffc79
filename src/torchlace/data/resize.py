"""Resizing of batches, as torchvision's Resize and CenterCrop do it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

_STEP = 1024


def resize_shorter(images: Tensor, size: int) -> Tensor:
    """Floating-point images, (N, C, H, W), with the shorter side resized to ``size``."""
    height, width = images.shape[-2:]
    short = min(height, width)
    if short == size:
        return images
    target = (int(size * height / short), int(size * width / short))
    # Enlarging needs no antialiasing, and the plain kernel is several times faster.
    return F.interpolate(images, target, mode="bilinear", antialias=short > size)


def center_crop(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of images, (..., H, W)."""
    top = round((images.shape[-2] - height) / 2)
    left = round((images.shape[-1] - width) / 2)
    return images[..., top : top + height, left : left + width]


def resize_square(images: Tensor, size: int) -> Tensor:
    """uint8 images, (N, C, H, W), with the shorter side resized to ``size``, cropped square."""
    if images.shape[-2:] == (size, size):
        return images
    parts = [
        center_crop(resize_shorter(part.float(), size), size, size).round().to(torch.uint8)
        for part in images.split(_STEP)
    ]
    return torch.cat(parts)
