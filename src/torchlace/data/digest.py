"""Digests of images that don't depend on their order."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

import torch

from torchlace.data.files import FileImages
from torchlace.data.images import Images

_STEP = 1024


def digest_of(train: Images, test: Images) -> str:
    """Digest of a whole set: images and labels of both parts, in any order within a part.

    Example:
        >>> from torchlace.data import MemoryImages
        >>> images = MemoryImages(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1]))
        >>> digest_of(images, images)
        'a437bf2b4740eeaf1efa010798916b2d'
    """
    parts = [part_digest(part) for part in (train, test)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


def part_digest(images: Images) -> str:
    """Digest of images and labels, in any order."""
    marks = _file_marks(images) if isinstance(images, FileImages) else image_hashes(images)
    labelled = sorted(
        mark + label.to_bytes(8, "little", signed=True)
        for mark, label in zip(marks, images.labels.tolist(), strict=True)
    )
    return hashlib.sha256(b"".join(labelled)).hexdigest()[:32]


def image_hashes(images: Images) -> list[bytes]:
    """A hash of each image: of its shape and pixels, or of its file's bytes where it streams."""
    if isinstance(images, FileImages):
        return [hashlib.sha256(path.read_bytes()).digest() for path in images.paths]
    head = repr(images.shape).encode()
    hashes: list[bytes] = []
    for part in torch.arange(len(images)).split(_STEP):
        rows = images.batch(part).flatten(1).numpy()
        hashes.extend(hashlib.sha256(head + row.tobytes()).digest() for row in rows)
    return hashes


def _file_marks(images: FileImages) -> Sequence[bytes]:
    return [
        hashlib.sha256(os.fsencode(f"{'/'.join(path.parts[-2:])} {path.stat().st_size}")).digest()
        for path in images.paths
    ]
