"""A picture of a set: some images of every class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlace._files import write_whole
from torchlace._text import shown
from torchlace.data.errors import DataError, require
from torchlace.data.images import ImageData

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageFont import FreeTypeFont

_CELL, _GAP, _MARGIN, _TEXT = 64, 4, 12, 14
_LABEL_WIDTH = 260
_MOST_CLASSES = 100


def contact_sheet(data: ImageData, path: Path | str, *, columns: int = 12) -> Path:
    """Write a PNG with a row of training images for each class (of the first 100 classes).

    Args:
        data: the set.
        path: where to write it.
        columns: images of each class, spread evenly over the set.

    Example:
        >>> import tempfile
        >>> from torchlace.data import load_data
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     contact_sheet(load_data("digits"), f"{folder}/digits.png").stat().st_size > 0
        True
    """
    pil = require("PIL.Image", "Pillow", "drawing a contact sheet")
    drawing = require("PIL.ImageDraw", "Pillow", "drawing a contact sheet")
    font = _font()
    cell = _cell(max(data.size))
    step = cell + _GAP
    labels = [_shorten(shown(name), font.getlength) for name in data.class_names[:_MOST_CLASSES]]
    title = _title(data)
    left = 2 * _MARGIN + round(max(font.getlength(label) for label in labels))
    top = 2 * _MARGIN + _TEXT
    across = max(left + columns * step, round(font.getlength(title)) + _MARGIN) + _MARGIN
    sheet = pil.new("RGB", (across, top + len(labels) * step + _MARGIN), "white")
    draw = drawing.Draw(sheet)
    draw.text((_MARGIN, _MARGIN + _TEXT // 2), title, "black", font, anchor="lm")
    for row, label in enumerate(labels):
        y = top + row * step
        draw.text((_MARGIN, y + cell // 2), label, "black", font, anchor="lm")
        for column, image in enumerate(data.train.batch(_examples(data, row, columns))):
            sheet.paste(_thumbnail(image, cell), (left + column * step, y))
    path = Path(path)
    write_whole(path, lambda file: sheet.save(file, format="PNG"), DataError, folders=True)
    return path


def _font() -> FreeTypeFont:
    # Pillow's own font lacks all but the plainest letters; matplotlib brings one that has most.
    fonts = require("PIL.ImageFont", "Pillow", "drawing a contact sheet")
    folder = require("matplotlib", "matplotlib", "drawing a contact sheet").get_data_path()
    font: FreeTypeFont = fonts.truetype(f"{folder}/fonts/ttf/DejaVuSans.ttf", _TEXT)
    return font


def _cell(side: int) -> int:
    """Small images are enlarged by a whole number, so that their pixels stay square."""
    return _CELL // side * side if side <= _CELL else _CELL


def _title(data: ImageData) -> str:
    height, width = data.size
    text = (
        f"{shown(data.name)}: {len(data.train):,} training and {len(data.test):,} test images, "
        f"{width} × {height} × {data.channels}, {data.num_classes} classes"
    )
    if data.num_classes > _MOST_CLASSES:
        text += f", the first {_MOST_CLASSES} shown"
    return text


def _examples(data: ImageData, label: int, count: int) -> Tensor:
    members = (data.train.labels == label).nonzero().flatten()
    if len(members) <= count:
        return members
    return members[torch.arange(count) * len(members) // count]


def _thumbnail(image: Tensor, side: int) -> Image.Image:
    from PIL import Image

    # More than three channels can't be shown; the first then stands for them.
    pixels = image.permute(1, 2, 0).numpy() if image.shape[0] == 3 else image[0].numpy()
    picture = Image.fromarray(pixels).convert("RGB")
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    method = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    cell = Image.new("RGB", (side, side), "white")
    cell.paste(picture.resize(size, method), ((side - size[0]) // 2, (side - size[1]) // 2))
    return cell


def _shorten(name: str, length: Callable[[str], float]) -> str:
    if length(name) <= _LABEL_WIDTH:
        return name
    while length(name + "…") > _LABEL_WIDTH:
        name = name[:-1]
    return name + "…"
