"""Image files, decoded: all at once into memory if they fit, else on demand."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchlace._text import counted, setting, shown
from torchlace.data.decode import (
    BadImage,
    BadImagesError,
    DataError,
    Header,
    decode_image,
    read_header,
    verify_image,
)
from torchlace.data.images import Images, Labelled, MemoryImages
from torchlace.data.listing import Listing

# Larger ones are photographs rather than what a network is meant to see whole.
_LARGEST = 512
# What image files are brought to where too few of them have one size.
MIXED_SIZE = (224, 224)
# This share of them must have one size for all to get it, in tenths.
_MAJORITY = 9

Result = TypeVar("Result")


class FileImages(Labelled, Dataset[tuple[Tensor, int]]):
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
        same = (self.labels == label).nonzero().flatten().tolist()
        for other in sorted(same, key=lambda each: each <= index):  # those that follow come first
            with suppress(BadImagesError):
                return self._decode(other), label
        raise DataError(f"no readable image is left of class {label}")

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8."""
        out = torch.empty(len(indices), *self.shape, dtype=torch.uint8)
        for place, index in zip(out, indices.tolist(), strict=True):
            place.copy_(self[index][0])
        return out

    def _decode(self, index: int) -> Tensor:
        return decode_image(self.paths[index], channels=self.shape[0], size=self.shape[1:])


class Collected(NamedTuple):
    """All listed images, the indices of those that can be used, and those that can't.

    ``resized`` says which images have been brought to another size than their own, if any have.
    """

    images: Images
    good: Tensor
    bad: tuple[BadImage, ...]
    resized: str


def subset(images: Images, indices: Tensor) -> Images:
    """Some of the images, held in the same way."""
    labels = images.labels[indices]
    if isinstance(images, FileImages):
        paths = [images.paths[index] for index in indices.tolist()]
        channels, *size = images.shape
        return FileImages(paths, labels, channels, (size[0], size[1]), skip_bad=images.skip_bad)
    return MemoryImages(images.batch(indices), labels)


def collect(
    listing: Listing,
    size: tuple[int, int] | None,
    mixed_size: tuple[int, int] | None,
    skip_bad: bool,
    memory_limit: int,
) -> Collected:
    """Decode every listed file, into memory if all fit below ``memory_limit`` bytes.

    Without a ``size`` they get the one that nine of ten have; where too few have one size, or it is
    more than 512 pixels, they get 224 × 224. A ``mixed_size`` is what they get instead as soon as
    one of them has another size than the others.

    Raises:
        BadImagesError: if some can't be used and ``skip_bad`` is False.
    """
    paths = listing.paths
    headers, bad = _each(lambda index: read_header(paths[index]), range(len(paths)))
    channels = 1 if all(header.grey for header in headers.values()) else 3
    shape, resized = (0, 0), ""
    if size is not None:
        shape = size
    elif headers:
        shape, resized = _common_size(paths, headers, mixed_size)
    in_memory = len(paths) * channels * shape[0] * shape[1] <= memory_limit
    pixels = torch.zeros(len(paths) if in_memory else 0, channels, *shape, dtype=torch.uint8)

    def look(index: int) -> None:
        if in_memory:
            pixels[index] = decode_image(paths[index], channels=channels, size=shape)
        else:
            verify_image(paths[index])

    good, more = _each(look, list(headers))
    bad = dict(sorted({**bad, **more}.items()))
    if bad and not skip_bad:
        raise BadImagesError.of(list(bad.values()))
    images: Images = (
        MemoryImages(pixels, listing.labels)
        if in_memory
        else FileImages(paths, listing.labels, channels, shape, skip_bad=skip_bad)
    )
    usable = torch.tensor(list(good), dtype=torch.int64)
    return Collected(images, usable, tuple(bad.values()), resized)


def _common_size(
    paths: Sequence[Path], headers: dict[int, Header], mixed_size: tuple[int, int] | None
) -> tuple[tuple[int, int], str]:
    """The size that all images get, and what is to be said of those that have another."""
    sizes = {index: (header.height, header.width) for index, header in headers.items()}
    (common, count), *others = Counter(sizes.values()).most_common()
    usual = 10 * count >= _MAJORITY * len(sizes) if mixed_size is None else not others
    if usual and max(common) <= _LARGEST:
        odd = ["/".join(paths[i].parts[-2:]) for i, each in sizes.items() if each != common]
        if not odd:
            return common, ""
        more = f" and {len(odd) - 3:,} more" if len(odd) > 3 else ""
        return common, (
            f"brought to {_pixels(common)} pixels, the size of the others: {len(odd):,} of "
            f"{len(sizes):,} images ({', '.join(map(shown, odd[:3]))}{more})"
        )
    size = mixed_size or MIXED_SIZE
    found = _pixels(common)
    if others:
        found = f"{_pixels(min(sizes.values()))} to {_pixels(max(sizes.values()))}"
    return size, (
        f"brought to {_pixels(size)} pixels: images of {counted(len(others) + 1, 'size')} "
        f"({found}); {setting('image_size')} chooses another"
    )


def _pixels(size: tuple[int, int]) -> str:
    """Width and height, as people say it."""
    return f"{size[1]} × {size[0]}"


def _each(
    function: Callable[[int], Result], indices: Sequence[int]
) -> tuple[dict[int, Result], dict[int, BadImage]]:
    """What a function makes of every file, and what is wrong with the others, by index."""

    def guarded(index: int) -> Result | BadImage:
        try:
            return function(index)
        except BadImagesError as error:
            return error.bad[0]

    # In threads: Pillow decodes without Python's lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = dict(zip(indices, pool.map(guarded, indices), strict=True))
    bad = {index: each for index, each in found.items() if isinstance(each, BadImage)}
    return {i: each for i, each in found.items() if not isinstance(each, BadImage)}, bad
