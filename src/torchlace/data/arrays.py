"""The arrays of a .npz file, once its headers are found to agree with what it holds."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy.typing as npt
from numpy.lib import format as npy

from torchlace._sizes import check_header, require_memory
from torchlace.data.errors import DataError

Arrays = dict[str, npt.NDArray[Any]]


def read_arrays(path: Path, names: Collection[str]) -> tuple[Arrays, list[str]]:
    """Those arrays of these names that a .npz holds, and the names of all that it holds.

    Nothing in it is executed. A header can claim any size, and numpy would make room for it: sizes
    are compared with those of the file, and with the memory there is, before anything is read.

    Raises:
        DataError: if it can't be read; the message says why.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            held = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            chosen = {name: held[name] for name in names if name in held}
            require_memory(path, sum(entry.file_size for entry in chosen.values()), DataError)
            return {name: _read(archive, each) for name, each in chosen.items()}, sorted(held)
    except DataError:
        raise
    except Exception as error:  # zipfile and numpy raise whatever a broken file leads them to
        reason = str(error).partition("\n")[0] or type(error).__name__
        advice = "it may be damaged or cut off: fetch or import it again"
        if "allow_pickle" in reason:
            advice = "it holds Python objects, which could run code: save plain arrays of numbers"
        raise DataError(f"{path}: not a readable .npz ({reason}); {advice}") from error


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(entry) as file:
        check_header(file, entry.file_size, entry.filename)
    with archive.open(entry) as file:
        array: npt.NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array
