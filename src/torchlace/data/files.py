"""Images that stay in their files and are decoded when they are needed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchlace.data.decode import decode_image
from torchlace.data.errors import BadImagesError, DataError


class FileImages(Dataset[tuple[Tensor, int]]):
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
        self.skip_bad = skip_bad
        self._channels = channels
        self._size = size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        return self._channels, *self._size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """The image, (C, H, W), uint8, and its label."""
        label = int(self.labels[index])
        try:
            return self._decode(index), label
        except BadImagesError as error:
            if not self.skip_bad:
                raise
            warnings.warn(f"another image in place of {error.bad[0]}", UserWarning, stacklevel=2)
        return self._stand_in(index, label), label

    def batch(self, indices: Tensor) -> Tensor:
        """The images at ``indices``, (n, C, H, W), uint8."""
        images = [self[index][0] for index in indices.tolist()]
        if not images:
            return torch.empty(0, *self.shape, dtype=torch.uint8)
        return torch.stack(images)

    def _decode(self, index: int) -> Tensor:
        return decode_image(self.paths[index], channels=self._channels, size=self._size)

    def _stand_in(self, index: int, label: int) -> Tensor:
        same = (self.labels == label).nonzero().flatten().tolist()
        later = [other for other in same if other > index]
        earlier = [other for other in same if other < index]
        for other in later + earlier:
            try:
                return self._decode(other)
            except BadImagesError:
                continue
        raise DataError(f"no readable image is left of class {label}")

    def __repr__(self) -> str:
        return f"FileImages({len(self)}, shape={self.shape})"
