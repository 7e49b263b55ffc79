"""Packs from what is already on disk."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from torchlace._text import setting
from torchlace.data.arrays import Arrays
from torchlace.data.digest import digest_of
from torchlace.data.errors import DataError, MissingDataError
from torchlace.data.formats import (
    LAYOUTS,
    Files,
    archive_files,
    folder_files,
    idx_names,
    read_idx,
)
from torchlace.data.images import ImageData, MemoryImages
from torchlace.data.known import KNOWN, identify
from torchlace.data.load import load_data
from torchlace.data.packs import (
    check_arrays,
    data_root,
    read_pack,
    to_array,
    to_tensor,
    write_pack,
)

_NAME = re.compile(r"\w[\w.-]*")
_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def import_data(
    source: Path | str,
    name: str | None = None,
    root: Path | str | None = None,
    *,
    size: int | None = None,
    skip_bad: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a pack from files in a known layout.

    Knows CIFAR-10 and CIFAR-100 (python and binary, unpacked or as the official archive), SVHN's
    .mat files, IDX files (gzipped or not), folders of class folders, CSVs of paths and labels, and
    packs. A folder that torchvision downloaded to is searched two levels down.

    Args:
        source: the folder or file.
        name: what to call the pack; by default what the layout or the source's name says.
        root: where packs live, see :func:`load_data`.
        size: height and width of image files, see :func:`load_data`.
        skip_bad: go on without image files that can't be read.
        overwrite: replace a pack of the same name.

    Returns:
        The path of the pack.

    Example:
        >>> import tempfile
        >>> from torchlace.data import load_data, write_pack
        >>> x, y = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 0, 1])
        >>> with tempfile.TemporaryDirectory() as root:
        ...     pack = write_pack(f"{root}/a.npz", {"x_train": x, "y_train": y})
        ...     import_data(pack, "mine", root).name
        'mine.npz'
    """
    source = Path(source).expanduser()
    if not source.exists():
        raise MissingDataError(f"no file or folder {source}")
    if not (source.is_file() or source.is_dir()):
        raise DataError(f"{source} is a device or a pipe: name a file or folder")
    arrays, found = _read_source(source, size=size, skip_bad=skip_bad)
    name = name or found
    if name is None:
        raise DataError(f"{source}: the files don't say which set they are; give {setting('name')}")
    known = KNOWN.get(name)
    if known is not None and known.pack != name:  # it would never be looked at
        raise DataError(f"a pack can't be called {name!r}: that is read from elsewhere")
    if not _NAME.fullmatch(name):
        raise DataError(f"a pack can't be called {name!r}; use letters, digits, '-', '_' and '.'")
    target = data_root(root) / f"{name}.npz"
    if target.exists() and not overwrite:
        raise DataError(
            f"{target} exists already; give another {setting('name')}, or "
            f"{setting('overwrite', True)}"
        )
    check_arrays(arrays, source)
    return write_pack(target, arrays)


def _read_source(source: Path, *, size: int | None, skip_bad: bool) -> tuple[Arrays, str | None]:
    """Arrays of a pack from files in a known layout, and the name of the set if they tell."""
    if source.name.endswith(_ARCHIVES):
        found = _recognise(archive_files(source), source)
    elif source.suffix.lower() == ".npz":
        return read_pack(source), source.stem
    elif source.suffix.lower() == ".csv":
        found = None
    else:
        found = _search(source)
    if found is not None:
        return found
    if source.is_file() and source.suffix.lower() != ".csv":
        raise DataError(
            f"{source}: no layout that is known; CIFAR, SVHN, IDX, class folders, a CSV of paths "
            "and labels or a .npz are"
        )
    return _pack(load_data(source.absolute(), size=size, skip_bad=skip_bad)), source.resolve().stem


def _search(folder: Path) -> tuple[Arrays, str | None] | None:
    if folder.is_file():
        return _recognise(folder_files(folder.parent), folder.parent)
    for depth in range(3):
        hits = []
        for sub in sorted(folder.glob("*/" * depth)) if depth else [folder]:
            recognised = _recognise(folder_files(sub), sub)
            if recognised is not None:
                hits.append((sub, recognised))
        if len(hits) > 1:
            held = ", ".join(str(sub) for sub, _ in hits)
            raise DataError(f"{folder}: holds several sets; give the folder of one: {held}")
        if hits:
            return hits[0][1]
    return None


def _recognise(files: Files, source: Path) -> tuple[Arrays, str | None] | None:
    """Read ``files`` if they are of a published layout."""
    try:
        for telling, reader, name in LAYOUTS:
            if telling <= set(files):
                return reader(files), name
        if idx_names(files):
            arrays = read_idx(files)
            return arrays, _identify(arrays)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    return None


def _identify(arrays: Arrays) -> str | None:
    """IDX files don't say what they show; the digest of the official images does."""
    train, test = (
        MemoryImages(to_tensor(arrays[f"x_{part}"]), torch.from_numpy(arrays[f"y_{part}"]))
        for part in ("train", "test")
    )
    known = identify(digest_of(train, test))
    return known[0] if known else None


def _pack(data: ImageData) -> Arrays:
    arrays: Arrays = {"class_names": np.array(data.class_names)}
    for part, images in (("train", data.train), ("test", data.test)):
        if not isinstance(images, MemoryImages):
            raise DataError(
                f"{data.name}: too large for a pack, which is held in memory; train on the folder "
                f"or CSV itself, or import it at a smaller {setting('size')}"
            )
        arrays[f"x_{part}"] = to_array(images.images)
        arrays[f"y_{part}"] = images.labels.numpy()
    return arrays
