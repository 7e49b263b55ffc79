"""Packs: a set in one .npz file, with x_train, y_train, x_test, y_test.

Images are uint8, (N, H, W) or (N, H, W, C); labels are integers from 0. ``class_names`` is
optional, as are ``y_train_coarse`` and ``y_test_coarse``.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.lib import format as npy
from torch import Tensor

from torchlace._files import check_header, require_memory, write_whole
from torchlace._text import is_text, listed, shown
from torchlace.data.decode import DataError, MissingDataError

Arrays = dict[str, npt.NDArray[Any]]

NAMES = (
    *("x_train", "y_train", "x_test", "y_test", "y_train_coarse", "y_test_coarse"),
    *("class_names", "fine_names"),
)
_MOST_CLASSES = 100_000


def data_root(root: Path | str | None = None) -> Path:
    """Where packs live: ``root``, else ``$TORCHLACE_DATA``, else ``~/.cache/torchlace``.

    Example:
        >>> data_root("packs")
        PosixPath('packs')
    """
    if root is not None:
        return Path(root).expanduser()
    return Path(os.environ.get("TORCHLACE_DATA") or "~/.cache/torchlace").expanduser()


def read_pack(path: Path | str) -> Arrays:
    """The arrays of a pack, checked for type and shape; nothing in the file is executed.

    Example:
        >>> import tempfile
        >>> x, y = np.zeros((2, 8, 8), np.uint8), np.array([0, 1])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = write_pack(f"{folder}/two.npz", {"x_train": x, "y_train": y})
        ...     sorted(read_pack(path))
        ['x_train', 'y_train']
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            held = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            chosen = {name: held[name] for name in NAMES if name in held}
            # A header can claim any size, and numpy would make room for it: sizes are compared
            # with those of the file, and with the memory there is, before anything is read.
            require_memory(path, sum(entry.file_size for entry in chosen.values()), DataError)
            arrays = {name: _read_array(archive, each) for name, each in chosen.items()}
    except DataError:
        raise
    except Exception as error:  # zipfile and numpy raise whatever a broken file leads them to
        reason = str(error).partition("\n")[0] or type(error).__name__
        advice = "it may be damaged or cut off: fetch or import it again"
        if "allow_pickle" in reason:
            advice = "it holds Python objects, which could run code: save plain arrays of numbers"
        raise DataError(f"{path}: not a readable .npz ({reason}); {advice}") from error
    check_arrays(arrays, path, sorted(held))
    return arrays


def write_pack(path: Path | str, arrays: Mapping[str, npt.NDArray[Any]]) -> Path:
    """Write a pack beside its place and rename it, so that it is never half-written.

    Example:
        See :func:`read_pack`.
    """
    path = Path(path)

    def save(file: Any) -> None:
        np.savez(file, allow_pickle=False, **arrays)

    write_whole(path, save, DataError, folders=True)
    return path


def check_arrays(arrays: Arrays, source: object, held: Sequence[str] = ()) -> None:
    """Raise where arrays are not those of a pack; ``held``: what else there was."""
    _check_part(arrays, "train", source, held or sorted(arrays))
    if "x_test" in arrays or "y_test" in arrays:
        _check_part(arrays, "test", source, held or sorted(arrays))
    for key in ("class_names", "fine_names"):
        if key in arrays:
            check_names(arrays[key], key, source)


def check_labels(y: npt.NDArray[Any], key: str, count: int, source: object) -> None:
    """Raise unless labels are integers from 0, one for each of ``count`` images."""
    if not np.issubdtype(y.dtype, np.integer) or y.shape != (count,):
        raise DataError(
            f"{source}: {key} must be integers of shape ({count},), one for each image, got "
            f"{y.dtype} {y.shape}"
        )
    if count == 0:
        raise DataError(f"{source}: {key} is empty")
    if y.min() < 0:
        raise DataError(f"{source}: {key} holds the label {y.min()}; labels start at 0")
    if y.max() >= max(count, _MOST_CLASSES):
        raise DataError(
            f"{source}: {key} holds the label {y.max()} for {count} images; labels number the "
            "classes from 0: np.unique(y, return_inverse=True)[1]"
        )


def check_names(names: npt.NDArray[Any], key: str, source: object) -> None:
    """Raise unless names of classes are texts that can be written."""
    if names.ndim != 1 or names.dtype.kind not in "Uiu":
        raise DataError(
            f"{source}: {key} must be texts of shape (classes,), got {names.dtype} {names.shape}"
        )
    for name in map(str, names):
        if not is_text(name):
            raise DataError(f"{source}: {key} holds {shown(name)}, which is no text: rename it")


def to_tensor(images: npt.NDArray[np.uint8]) -> Tensor:
    """Images of a pack, (N, H, W) or (N, H, W, C), as (N, C, H, W)."""
    tensor = torch.from_numpy(images)
    return tensor[:, None] if tensor.dim() == 3 else tensor.permute(0, 3, 1, 2).contiguous()


def to_array(images: Tensor) -> npt.NDArray[np.uint8]:
    """Images, (N, C, H, W), as a pack holds them."""
    array: npt.NDArray[np.uint8] = images.permute(0, 2, 3, 1).contiguous().numpy()
    return array[..., 0] if array.shape[-1] == 1 else array


def _read_array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(entry) as file:
        check_header(file, entry.file_size, entry.filename)
    with archive.open(entry) as file:
        array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array


def _check_part(arrays: Arrays, part: str, source: object, held: Sequence[str]) -> None:
    for key in (f"x_{part}", f"y_{part}"):
        if key not in arrays:
            raise DataError(
                f"{source}: no array {key}; a set holds x_train, y_train, x_test, y_test, this "
                f"one {listed(held) or 'nothing'}"
            )
    x = arrays[f"x_{part}"]
    if x.dtype != np.uint8 or x.ndim not in (3, 4):
        raise DataError(
            f"{source}: x_{part} must be uint8 of shape (N, H, W) or (N, H, W, C), got {x.dtype} "
            f"{x.shape}"
        )
    if x.shape[0] and not x.size:
        raise DataError(f"{source}: x_{part} has shape {x.shape}: its images have no pixels")
    if x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] not in (1, 3, 4):
        raise DataError(
            f"{source}: x_{part} has shape {x.shape}, with the channels first; they go last: "
            "x.transpose(0, 2, 3, 1)"
        )
    if x.shape[1:] != arrays["x_train"].shape[1:]:
        raise DataError(
            f"{source}: test images have shape {x.shape[1:]}, training images "
            f"{arrays['x_train'].shape[1:]}"
        )
    for key in (f"y_{part}", f"y_{part}_coarse"):
        if key in arrays:
            check_labels(arrays[key], key, len(x), source)
