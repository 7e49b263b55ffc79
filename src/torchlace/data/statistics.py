"""Mean and deviation of the channels, to normalise by."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchlace.data.errors import DataError
from torchlace.data.images import Images, MemoryImages
from torchlace.data.splits import scatter

SAMPLED = 2048
_STEP = 512


def channel_statistics(images: Images, indices: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every channel, on a scale of 0 to 1.

    All images in memory count. Of images that are decoded from files, a fixed choice of 2,048 is
    looked at where there are more. A constant channel gets the deviation of one grey level, so
    that dividing by it is safe.

    Args:
        images: the images.
        indices: which of them count; None for all.

    Returns:
        Mean and deviation, each (C,), float32.

    Example:
        >>> grey = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 4, 4)
        >>> channel_statistics(MemoryImages(grey, torch.tensor([0, 1])))
        (tensor([0.5000]), tensor([0.5000]))
    """
    if indices is None:
        indices = torch.arange(len(images))
    if not isinstance(images, MemoryImages) and len(indices) > SAMPLED:
        chosen = np.argsort(scatter(len(indices), seed=0), kind="stable")[:SAMPLED]
        indices = indices[torch.from_numpy(np.sort(chosen))]
    if not len(indices):
        raise DataError("no images to take the mean and deviation of")
    channels, height, width = images.shape
    total, squares = torch.zeros(2, channels, dtype=torch.float64)
    for part in indices.split(_STEP):
        # Added up over an image in float32 and over images in float64: rounding stays below 1e-6
        # however many there are.
        values = images.batch(part).flatten(2).float()
        total += values.sum(dim=2).double().sum(dim=0)
        squares += torch.linalg.vecdot(values, values).double().sum(dim=0)
    count = len(indices) * height * width
    mean = total / count
    deviation = (squares / count - mean.square()).clamp_min(0).sqrt().clamp_min(1)
    return (mean / 255).float(), (deviation / 255).float()
