"""What can be wrong with data, and image files: opened here alone, decoded to uint8, resized."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace._text import counted, setting, shown

if TYPE_CHECKING:
    from PIL import Image

MAX_PIXELS = 89_478_485  # Pillow's own bound, 256 MiB of RGB: beyond it, it suspects an attack
_LISTED = 10
_ORIENTATION = 0x0112
_GREY = {"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N"}
# Whatever a file is called, Pillow would try thirty formats more, and hand PostScript to a program.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "AVIF", "HEIF", "JPEG2000", "PPM")


class DataError(ValueError):
    """Data that can't be used as it is; the message says what is wrong and what to do."""


class MissingDataError(DataError, FileNotFoundError):
    """Data that isn't where it was looked for."""


@dataclass(frozen=True)
class BadImage:
    """An image file that can't be used, and what is wrong with it."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{shown(self.path)}: {shown(self.reason)}"


class BadImagesError(DataError):
    """Some image files can't be used.

    Attributes:
        bad: all of them; the message lists the first ten.
    """

    def __init__(self, message: str, bad: Sequence[BadImage] = ()) -> None:
        # A DataLoader makes the error of a worker anew from a message that is its whole traceback.
        super().__init__(message.rpartition(f"{type(self).__name__}: ")[2])
        self.bad = tuple(bad)

    @classmethod
    def of(cls, bad: Sequence[BadImage]) -> BadImagesError:
        """The error that lists these files."""
        lines = [f"  {each}" for each in bad[:_LISTED]]
        if len(bad) > _LISTED:
            lines.append(f"  and {len(bad) - _LISTED} more")
        count, them = counted(len(bad), "image"), "it" if len(bad) == 1 else "them"
        return cls(
            f"{count} can't be used; repair or remove {them}, or go on without {them} by "
            f"{setting('skip_bad', True)} (in YAML, skip_bad: true):\n" + "\n".join(lines),
            bad,
        )


@dataclass(frozen=True)
class Header:
    """What the first bytes of an image say; its size is that after the camera's orientation."""

    height: int
    width: int
    grey: bool


def decode_image(path: Path | str, *, channels: int, size: tuple[int, int] | None = None) -> Tensor:
    """An image file as a uint8 tensor, (channels, H, W).

    Turned as its EXIF orientation says; transparent parts shown on white; 16-bit grey scaled to 8
    bits; palettes, CMYK and the like converted; of animations, the first frame. To reach ``size``
    it is resized (bilinear, antialiased) to just cover it and cropped around the centre.

    Args:
        path: the file.
        channels: 1 for grey, 3 for RGB.
        size: height and width to give it; None to leave it as it is.

    Raises:
        BadImagesError: if it can't be read, is cut off or enormous.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.new("RGB", (40, 30)).save(f"{folder}/a.png")
        ...     decode_image(f"{folder}/a.png", channels=1, size=(20, 20)).shape
        torch.Size([1, 20, 20])
    """
    path = Path(path)
    if channels not in (1, 3):
        raise DataError(
            f"{path}: image files are read as 1 channel (grey) or 3 (RGB); {channels} are wanted "
            "here, which only a pack has"
        )
    with _open(path) as image:
        if size is not None:
            # A photograph's JPEG decodes several times faster at a fraction of its size, and twice
            # the target leaves the resize enough to average.
            image.draft(None, (2 * max(size), 2 * max(size)))
        upright = _convert(image, channels)
        if size is not None and size != (upright.height, upright.width):
            from PIL import Image, ImageOps

            upright = ImageOps.fit(upright, size[::-1], Image.Resampling.BILINEAR)
        pixels = np.array(upright, np.uint8).reshape(upright.height, upright.width, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def read_header(path: Path) -> Header:
    """Size and kind of an image, without decoding it."""
    with _open(path) as image:
        width, height = image.size
        if image.getexif().get(_ORIENTATION, 1) >= 5:
            width, height = height, width
        return Header(height, width, image.mode in _GREY)


def verify_image(path: Path) -> None:
    """Decode an image in the cheapest way that still meets every byte of it, or raise."""
    with _open(path) as image:
        image.draft(None, (1, 1))
        image.load()
        _check_mode(image)


def as_picture(image: Tensor) -> Image.Image:
    """An image, (C, H, W), uint8, as Pillow's: grey or RGB, of others the first channel."""
    pil = require("PIL.Image", "Pillow", "showing images")
    pixels = image.permute(1, 2, 0).contiguous() if image.shape[0] == 3 else image[0].contiguous()
    picture: Image.Image = pil.fromarray(pixels.numpy())
    return picture


def require(module: str, package: str, purpose: str) -> ModuleType:
    """Import an optional ``module``, or say which package brings it and why it is needed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {package}: pip install 'torchlace[train]' ({error})"
        ) from error


def resize_to_cover(images: Tensor, height: int, width: int) -> Tensor:
    """Floating-point images, (N, C, H, W), resized in their proportions to just cover a size."""
    high, wide = images.shape[-2:]
    if height * wide >= width * high:
        target, before, after = (height, int(height * wide / high)), high, height
    else:
        target, before, after = (int(width * high / wide), width), wide, width
    if before == after:
        return images
    # Enlarging needs no antialiasing, and the plain kernel is several times faster.
    return F.interpolate(images, target, mode="bilinear", antialias=before > after)


def center_crop(images: Tensor, height: int, width: int) -> Tensor:
    """The middle of images, (..., H, W)."""
    top = round((images.shape[-2] - height) / 2)
    left = round((images.shape[-1] - width) / 2)
    return images[..., top : top + height, left : left + width]


def resize_and_crop(images: Tensor, height: int, width: int) -> Tensor:
    """uint8 images, (N, C, H, W), resized to just cover a size and cropped around the centre."""
    if images.shape[-2:] == (height, width):
        return images
    covering = resize_to_cover(images.float(), height, width)
    return center_crop(covering, height, width).round().to(torch.uint8)


@contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    """An image file; every one that is read anywhere comes through here."""
    pil = require("PIL.Image", "Pillow", "reading image files")
    pil.init()
    known = [name for name in _FORMATS if name in pil.OPEN]
    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError
        image: Image.Image = pil.open(path, formats=known)
        with image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"enormous: {image.width} × {image.height} pixels")
            yield image
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a broken file leads them to
        raise BadImagesError.of([BadImage(path, _reason(path, error))]) from error


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if path.stat().st_size == 0:
        return "empty file"
    if type(error).__name__ == "UnidentifiedImageError":
        return "not an image that Pillow can read; convert it to JPEG or PNG"
    if type(error).__name__ == "DecompressionBombError":
        return f"enormous: more than {2 * MAX_PIXELS:,} pixels"
    return str(error) or type(error).__name__


def _check_mode(image: Image.Image) -> None:
    if image.mode == "F":
        raise ValueError("floating-point pixels; convert it to 8 or 16 bits")
    if image.mode == "I":
        low, high = image.getextrema()
        if not 0 <= float(str(low)) <= float(str(high)) < 2**16:
            raise ValueError("32-bit pixels; convert it to 8 or 16 bits")


def _convert(image: Image.Image, channels: int) -> Image.Image:
    from PIL import Image, ImageOps

    image = ImageOps.exif_transpose(image)
    _check_mode(image)
    mode = "L" if channels == 1 else "RGB"
    if image.mode.startswith("I"):
        deep: npt.NDArray[np.int64] = np.asarray(image).astype(np.int64)
        image = Image.fromarray((deep >> 8).astype(np.uint8))
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    return image.convert(mode)
