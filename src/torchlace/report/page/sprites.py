"""Many small images in one picture, of which the page shows a cell at a time."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

    from torchlace.data import Images

# Pixels of a whole sheet: 5,000 images of 32 × 32.
_PIXELS = 5_120_000
_LARGEST = 96
_LOSSLESS = 400_000
_SHOWN = 72


@dataclass(frozen=True)
class Sheet:
    """Images side by side in one picture.

    Attributes:
        uri: the picture.
        cell: side of a cell in pixels of the picture.
        columns: cells in a row.
        rows: rows of cells.
        shown: side of a cell on the page, in CSS pixels.
        places: cell of every image, by its place in the test split.
    """

    uri: str
    cell: int
    columns: int
    rows: int
    shown: int
    places: dict[int, int]

    def position(self, index: int) -> str:
        """Where the picture must be moved to show this image, as CSS."""
        row, column = divmod(self.places[index], self.columns)
        return f"-{column * self.shown}px -{row * self.shown}px"


def make_sheet(images: Images, indices: Sequence[int]) -> Sheet:
    """Draw the images at ``indices`` side by side, smaller where they are many or large."""
    from PIL import Image

    channels, height, width = images.shape
    fitting = int(math.sqrt(_PIXELS / len(indices)))
    cell = max(1, min(max(height, width), _LARGEST, fitting))
    columns = math.ceil(math.sqrt(len(indices)))
    rows = math.ceil(len(indices) / columns)
    mode = "RGB" if channels == 3 else "L"
    sheet = Image.new(mode, (columns * cell, rows * cell))
    for start in range(0, len(indices), 512):
        batch = images.batch(torch.tensor(indices[start : start + 512]))
        for place, pixels in enumerate(batch.numpy(), start=start):
            picture = Image.fromarray(_visible(pixels))
            picture.thumbnail((cell, cell), Image.Resampling.LANCZOS)
            row, column = divmod(place, columns)
            left, top = (cell - picture.width) // 2, (cell - picture.height) // 2
            sheet.paste(picture, (column * cell + left, row * cell + top))
    return Sheet(
        _encoded(sheet),
        cell,
        columns,
        rows,
        # Small images grow by a whole number, so that their pixels stay square.
        _SHOWN // cell * cell if cell <= _SHOWN else _SHOWN,
        {index: place for place, index in enumerate(indices)},
    )


def _visible(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Neither two nor more than three channels can be shown; the first then stands for them.
    return np.ascontiguousarray(pixels.transpose(1, 2, 0)) if len(pixels) == 3 else pixels[0]


def _encoded(picture: Image.Image) -> str:
    file = io.BytesIO()
    small = picture.width * picture.height * len(picture.getbands()) <= _LOSSLESS
    picture.save(file, "WEBP", lossless=small, quality=90 if small else 72, method=4)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()
