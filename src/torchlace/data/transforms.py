"""What happens to images before the network, on any device: augmented or cropped, normalised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlace._checks import check_choice
from torchlace.data.boxes import TRIES, crop_boxes, random_boxes, rectangles, shifted_boxes
from torchlace.data.decode import DataError, center_crop, resize_to_cover
from torchlace.data.images import ImageData, Images, MemoryImages, scatter

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
# The paper's protocol: images are brought to the first size, and of it the second is cropped.
PAPER_RESIZE, PAPER_CROP = 256, 224
PROTOCOLS = ("native", "paper")
CROPS = ("resized", "shift")
_SAMPLED, _STEP = 2048, 512

Values = Sequence[float] | Tensor


class Prepare:
    """Images as the network takes them: resized and centre-cropped if asked for, normalised.

    Args:
        mean: of every channel, on a scale of 0 to 1. Grey images are repeated to as many channels.
        std: deviation of every channel, likewise.
        resize: what to resize the shorter side to; None to leave it.
        crop: side of the square to cut from the centre; None for the whole image.

    Example:
        >>> prepare = Prepare([0.5], [0.25], resize=16, crop=14)
        >>> prepare(torch.full((2, 1, 8, 8), 255, dtype=torch.uint8)).shape
        torch.Size([2, 1, 14, 14])
    """

    def __init__(
        self, mean: Values, std: Values, *, resize: int | None = None, crop: int | None = None
    ) -> None:
        self.mean = tuple(float(value) for value in mean)
        self.std = tuple(float(value) for value in std)
        if len(self.mean) != len(self.std) or min(self.std, default=0) <= 0:
            raise DataError(
                f"mean and std must be as long as each other and std positive, got {self.mean} "
                f"and {self.std}"
            )
        self.resize = resize
        self.crop = crop
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        """uint8 images, (N, C, H, W), as normalised float32 on the same device."""
        values = self._enlarge(images)
        if self.crop is not None:
            values = center_crop(values, self.crop, self.crop)
        return self._normalize(values)

    def _enlarge(self, images: Tensor) -> Tensor:
        values = images.float()
        if self.resize is None:
            return values
        return resize_to_cover(values, self.resize, self.resize)

    def _normalize(self, values: Tensor) -> Tensor:
        if values.shape[1] not in (1, len(self.mean)):
            raise DataError(
                f"images have {values.shape[1]} channels, the mean has {len(self.mean)}"
            )
        # Copied to the device once: a copy in every step would keep a CUDA graph from capturing.
        if values.device not in self._constants:
            mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (self.mean, self.std))
            pair = (-mean / std).to(values.device), (1 / (255 * std)).to(values.device)
            self._constants[values.device] = pair
        shift, factor = self._constants[values.device]
        return torch.addcmul(shift, values, factor)

    def __repr__(self) -> str:
        return f"Prepare(resize={self.resize}, crop={self.crop})"


class Augment(Prepare):
    """Random crop and flip, for training, each image its own, then normalised.

    A ``"resized"`` crop is that of :class:`torchvision.transforms.v2.RandomResizedCrop` without
    antialiasing: ten tries at an area and an aspect ratio, the first that fits wins, else the
    central crop. All ten are drawn at once, so that shapes don't depend on values: nothing waits
    for the host, and a CUDA graph can hold it. (Call it once before capturing, and register your
    generator with the graph.) A ``"shift"`` moves the image by up to an eighth of its sides, in
    whole pixels, and fills what it leaves with its mirror image.

    Args:
        mean, std: of every channel, see :class:`Prepare`.
        size: height and width that come out.
        mirror: whether half the images are mirrored.
        crop: ``"resized"`` or ``"shift"``.
        erase: side of a square that is erased at a random place, as a share of the image's sides;
            what of it lies outside is lost.
        scale: bounds of the crop's share of the area.
        ratio: bounds of its width by its height, log-uniform.
        resize: what the shorter side is resized to before; None to leave it.

    Example:
        >>> augment = Augment([0.5] * 3, [0.25] * 3, (32, 32), mirror=True)
        >>> images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
        >>> augment(images, torch.Generator().manual_seed(0)).shape
        torch.Size([4, 3, 32, 32])
    """

    def __init__(
        self,
        mean: Values,
        std: Values,
        size: int | tuple[int, int],
        *,
        mirror: bool,
        crop: str = "resized",
        erase: float = 0.0,
        scale: tuple[float, float] = (0.8, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        resize: int | None = None,
    ) -> None:
        super().__init__(mean, std, resize=resize)
        self.size = (size, size) if isinstance(size, int) else size
        self.mirror = mirror
        self.cut = check_choice("crop", crop, CROPS)
        self.erase = erase
        self.scale = scale
        self.ratio = ratio
        if not 0 < scale[0] <= scale[1] or not 0 < ratio[0] <= ratio[1]:
            raise DataError(f"scale and ratio must be positive (low, high), got {scale}, {ratio}")

    def __call__(
        self,
        images: Tensor,
        generator: torch.Generator | None = None,
        draws: Tensor | None = None,
    ) -> Tensor:
        """uint8 images, (N, C, H, W), cropped and normalised, float32, on the same device.

        Random numbers come from ``generator``, unless :meth:`draw` was called for ``draws`` before.
        """
        values = self._enlarge(images)
        count, _, height, width = values.shape
        if draws is None:
            draws = self.draw(count, values.device, generator)
        flipped = draws[:, -1] < 0.5 if self.mirror else None
        shifts = self.cut == "shift"
        if shifts:
            boxes = shifted_boxes(draws[:, :2], height, width)
        else:
            boxes = random_boxes(draws[:, : 2 * TRIES + 2], height, width, self.scale, self.ratio)
        cut = crop_boxes(values, boxes, self.size, flipped, mirrored=shifts)
        values = self._normalize(cut)
        if not self.erase:
            return values
        erased = rectangles(draws[:, -3:-1], draws.new_full((1,), self.erase), *self.size)
        return values.masked_fill(erased[:, None], 0.0)

    def draw(
        self, count: int, device: torch.device, generator: torch.Generator | None = None
    ) -> Tensor:
        """The random numbers for ``count`` images."""
        numbers = 2 * TRIES + (5 if self.erase else 3)
        return torch.rand(count, numbers, device=device, generator=generator)

    def __repr__(self) -> str:
        if self.cut == "shift":
            return f"Augment({self.size}, mirror={self.mirror}, crop='shift', erase={self.erase})"
        return f"Augment({self.size}, mirror={self.mirror}, scale={self.scale}, ratio={self.ratio})"


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
    if not isinstance(images, MemoryImages) and len(indices) > _SAMPLED:
        chosen = np.argsort(scatter(len(indices), seed=0), kind="stable")[:_SAMPLED]
        indices = indices[torch.from_numpy(np.sort(chosen))]
    if not len(indices):
        raise DataError("no images to take the mean and deviation of")
    channels, height, width = images.shape
    total, rectangles = torch.zeros(2, channels, dtype=torch.float64)
    for part in indices.split(_STEP):
        # Added up over an image in float32 and over images in float64: rounding stays below 1e-6
        # however many there are.
        values = images.batch(part).flatten(2).float()
        total += values.sum(dim=2).double().sum(dim=0)
        rectangles += torch.linalg.vecdot(values, values).double().sum(dim=0)
    count = len(indices) * height * width
    mean = total / count
    deviation = (rectangles / count - mean.square()).clamp_min(0).sqrt().clamp_min(1)
    return (mean / 255).float(), (deviation / 255).float()


def protocol_transforms(
    protocol: str, data: ImageData, stats: tuple[Tensor, Tensor] | None = None, **options: Any
) -> tuple[Augment, Prepare]:
    """What a protocol does to the images of training and of evaluation.

    Args:
        protocol: ``"native"``: the data's own size and statistics; ``"paper"``: resized to 256,
            224 pixels cropped, ImageNet's statistics, grey repeated to three channels.
        data: what it is applied to. Image files that differ in size are best loaded with
            ``mixed_size=(256, 256)`` for ``"paper"``, which would else enlarge them again.
        stats: mean and deviation for ``"native"``, see :func:`channel_statistics`; None computes
            those of all training images.
        **options: ``crop`` and ``erase`` of :class:`Augment`.

    Example:
        >>> from torchlace.data import load_data
        >>> augment, prepare = protocol_transforms("paper", load_data("digits"))
        >>> prepare(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3, 224, 224])
    """
    if check_choice("protocol", protocol, PROTOCOLS) == "native":
        mean, std = channel_statistics(data.train) if stats is None else stats
        augment = Augment(mean, std, data.size, mirror=data.mirror, **options)
        return augment, Prepare(mean, std)
    if data.channels not in (1, 3):
        raise DataError(
            f"the paper protocol takes grey or RGB images, {data.name} has {data.channels} "
            "channels; use the native protocol"
        )
    statistics = (IMAGENET_MEAN, IMAGENET_STD)
    options |= {"mirror": data.mirror, "resize": PAPER_RESIZE}
    augment = Augment(*statistics, PAPER_CROP, **options)
    return augment, Prepare(*statistics, resize=PAPER_RESIZE, crop=PAPER_CROP)
