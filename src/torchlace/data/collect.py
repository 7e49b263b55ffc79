"""Listed image files, looked at one and all before anything is trained on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from torchlace.data.decode import Header, decode_image, read_header, verify_image
from torchlace.data.errors import BadImage, BadImagesError
from torchlace.data.files import FileImages
from torchlace.data.images import Images, MemoryImages
from torchlace.data.listing import Listing

# Larger ones are photographs rather than what a network is meant to see whole.
_LARGEST = 512

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Collected:
    """Image files, in memory where they fit.

    Attributes:
        images: all that were listed.
        good: indices of those that can be used.
        bad: those that can't.
    """

    images: Images
    good: Tensor
    bad: tuple[BadImage, ...]


def collect(
    listing: Listing,
    size: int | None,
    mixed_size: tuple[int, int],
    skip_bad: bool,
    memory_limit: int,
) -> Collected:
    """Decode every listed file, into memory if all fit below ``memory_limit`` bytes.

    Without a ``size`` they keep theirs; where they differ in it, or it is more than 512 pixels,
    they get ``mixed_size``.

    Raises:
        BadImagesError: if some can't be used and ``skip_bad`` is False.
    """
    headers = _each(read_header, listing.paths)
    good = [index for index, header in enumerate(headers) if isinstance(header, Header)]
    known = [header for header in headers if isinstance(header, Header)]
    channels = 1 if all(header.grey for header in known) else 3
    shape = _common_size(known, mixed_size) if size is None else (size, size)
    labels = torch.tensor(listing.labels)
    if len(headers) * channels * shape[0] * shape[1] <= memory_limit:
        pixels = torch.zeros(len(headers), channels, *shape, dtype=torch.uint8)
        images: Images = MemoryImages(pixels, labels)

        def look(index: int) -> None:
            pixels[index] = decode_image(listing.paths[index], channels=channels, size=shape)
    else:
        images = FileImages(listing.paths, labels, channels, shape, skip_bad=skip_bad)

        def look(index: int) -> None:
            verify_image(listing.paths[index])

    looked = dict(zip(good, _each(look, good), strict=True))
    found = [looked.get(index, header) for index, header in enumerate(headers)]
    bad = tuple(each for each in found if isinstance(each, BadImage))
    if bad and not skip_bad:
        raise BadImagesError.of(bad)
    kept = [index for index, each in enumerate(found) if not isinstance(each, BadImage)]
    return Collected(images, torch.tensor(kept, dtype=torch.int64), bad)


def subset(images: Images, indices: Tensor) -> Images:
    """Some of the images, held in the same way."""
    labels = images.labels[indices]
    if isinstance(images, FileImages):
        channels, height, width = images.shape
        paths = [images.paths[index] for index in indices.tolist()]
        return FileImages(paths, labels, channels, (height, width), skip_bad=images.skip_bad)
    return MemoryImages(images.batch(indices), labels)


def _common_size(headers: Sequence[Header], mixed_size: tuple[int, int]) -> tuple[int, int]:
    sizes = {(header.height, header.width) for header in headers}
    alike = len(sizes) == 1 and max(max(size) for size in sizes) <= _LARGEST
    return sizes.pop() if alike else mixed_size


def _each(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | BadImage]:
    """``function`` of every item, in threads: Pillow decodes without Python's lock."""

    def guarded(item: Item) -> Result | BadImage:
        try:
            return function(item)
        except BadImagesError as error:
            return error.bad[0]

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(guarded, items))
