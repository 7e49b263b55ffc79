"""Where images are cut: boxes drawn at random, and what lies in them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

# RandomResizedCrop tries so many areas and ratios.
TRIES = 10


def random_boxes(
    draws: Tensor, height: int, width: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Tensor:
    """Crops of RandomResizedCrop from uniform ``draws``, (N, 22): top, left, height, width, (N, 4).

    Example:
        >>> random_boxes(torch.full((1, 22), 0.5), 32, 32, (0.8, 1.0), (0.75, 4 / 3))
        tensor([[ 1.,  1., 30., 30.]])
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    area = (scale[0] + (scale[1] - scale[0]) * draws[:, :TRIES]) * (height * width)
    aspect = torch.exp(low + (high - low) * draws[:, TRIES : 2 * TRIES])
    widths, heights = torch.sqrt(area * aspect).round(), torch.sqrt(area / aspect).round()
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    first, found = fits.byte().argmax(dim=1, keepdim=True), fits.any(dim=1)
    # Where no try fits, torchvision cuts all that the bounds of the ratio allow from the middle.
    w = torch.where(found, widths.gather(1, first)[:, 0], min(width, round(height * ratio[1])))
    h = torch.where(found, heights.gather(1, first)[:, 0], min(height, round(width / ratio[0])))
    place_y, place_x = draws[:, 2 * TRIES], draws[:, 2 * TRIES + 1]
    top = torch.where(found, place_y * (height - h + 1), (height - h) / 2).floor()
    left = torch.where(found, place_x * (width - w + 1), (width - w) / 2).floor()
    return torch.stack((top, left, h, w), dim=1)


def shifted_boxes(draws: Tensor, height: int, width: int) -> Tensor:
    """Whole images moved by up to an eighth, from uniform ``draws``, (N, 2); as boxes, (N, 4).

    Example:
        >>> shifted_boxes(torch.tensor([[0.0, 0.999]]), 32, 32)
        tensor([[-4.,  4., 32., 32.]])
    """
    places = []
    for draw, side in zip(draws.unbind(1), (height, width), strict=True):
        most = side // 8
        places.append((draw * (2 * most + 1)).floor() - most)
    whole = [torch.full_like(places[0], side) for side in (height, width)]
    return torch.stack((*places, *whole), dim=1)


def crop_boxes(
    images: Tensor,
    boxes: Tensor,
    size: tuple[int, int],
    flipped: Tensor | None = None,
    *,
    mirrored: bool = False,
) -> Tensor:
    """Cut a box from every floating-point image, resize it to ``size``, flip it where asked.

    Args:
        images: (N, C, H, W).
        boxes: top, left, height, width in pixels, (N, 4).
        size: height and width that come out.
        flipped: which images to mirror, (N,); None for none.
        mirrored: fill what of a box lies outside of the image with the mirror image inside; else
            the pixels at the border go on.

    Example:
        >>> image = torch.arange(16.0).view(1, 1, 4, 4)
        >>> crop_boxes(image, torch.tensor([[1.0, 1.0, 2.0, 2.0]]), (2, 2)).view(2, 2)
        tensor([[ 5.,  6.],
                [ 9., 10.]])
    """
    height, width = images.shape[-2:]
    y = _positions(boxes[:, 0], boxes[:, 2], size[0])
    x = _positions(boxes[:, 1], boxes[:, 3], size[1])
    if flipped is not None:
        x = torch.where(flipped[:, None], x.flip(1), x)
    y, x = (2 * y + 1) / height - 1, (2 * x + 1) / width - 1
    grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), dim=-1)
    padding = "reflection" if mirrored else "border"
    return F.grid_sample(images, grid, padding_mode=padding, align_corners=False)


def rectangles(centres: Tensor, sides: Tensor, height: int, width: int) -> Tensor:
    """Which pixels lie in a rectangle about each centre, (N, H, W).

    Args:
        centres: from 0 to 1, down and across, (N, 2).
        sides: as shares of the image's, (N,) or (1,).
        height: of the image.
        width: of the image.

    Example:
        >>> rectangles(torch.tensor([[0.5, 0.0]]), torch.tensor([0.5]), 4, 4).int()
        tensor([[[0, 0, 0, 0],
                 [1, 0, 0, 0],
                 [1, 0, 0, 0],
                 [0, 0, 0, 0]]], dtype=torch.int32)
    """
    inside = []
    for place, count in zip(centres.unbind(1), (height, width), strict=True):
        pixels = (torch.arange(count, device=centres.device) + 0.5) / count
        inside.append((pixels - place[:, None]).abs() < sides[:, None] / 2)
    return inside[0][:, :, None] & inside[1][:, None, :]


def _positions(start: Tensor, length: Tensor, count: int) -> Tensor:
    """Where ``count`` pixels sample a stretch of the source, (N, count), never outside of it."""
    steps = torch.arange(count, device=start.device, dtype=start.dtype) + 0.5
    offset = steps * (length / count)[:, None] - 0.5
    return start[:, None] + torch.minimum(offset.clamp_min(0), (length - 1)[:, None])
