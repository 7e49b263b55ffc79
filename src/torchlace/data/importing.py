"""Packs from files that are on disk already, or that torchvision downloads."""

from __future__ import annotations

import re
import shutil
import tarfile
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlace._files import require_memory
from torchlace._text import setting
from torchlace._values import check_choice
from torchlace.data import packs
from torchlace.data.decode import DataError, MissingDataError, require
from torchlace.data.formats import LAYOUTS, Files, read_idx
from torchlace.data.images import ImageData, MemoryImages
from torchlace.data.load import digest_of, load_data
from torchlace.data.packs import Arrays
from torchlace.data.sources import KNOWN, data_names, identify

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
    """Write a pack from files in a known layout; its path.

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
    packed = name in KNOWN and KNOWN[name].pack == name
    if name in data_names() and not packed:  # it would never be looked at
        raise DataError(f"a pack can't be called {name!r}: that is read from elsewhere")
    if not _NAME.fullmatch(name):
        raise DataError(f"a pack can't be called {name!r}; use letters, digits, '-', '_' and '.'")
    target = packs.data_root(root) / f"{name}.npz"
    if target.exists() and not overwrite:
        raise DataError(
            f"{target} exists already; give another {setting('name')}, or "
            f"{setting('overwrite', True)}"
        )
    packs.check_arrays(arrays, source)
    return packs.write_pack(target, arrays)


def fetch_data(name: str, root: Path | str | None = None) -> Path:
    """Download a known set and write its pack, unless it is there already; its path.

    Addresses and checksums are torchvision's.

    Args:
        name: ``fashion_mnist``, ``cifar10``, ``svhn`` or ``cifar100``.
        root: where packs live, see :func:`load_data`.

    Example:
        >>> fetch_data("digits")
        Traceback (most recent call last):
        torchlace.data.decode.DataError: digits come with scikit-learn: there is nothing to fetch
    """
    pack = KNOWN[check_choice("data to fetch", name, KNOWN)].pack
    if pack is None:
        raise DataError(f"{name} come with scikit-learn: there is nothing to fetch")
    target = packs.data_root(root) / f"{pack}.npz"
    if target.is_file():
        return target
    # Kept until the pack is written, so that what arrived before a failure isn't fetched twice.
    downloads = target.with_name(f".{pack}.download")
    datasets = require("torchvision.datasets", "torchvision", "downloading data")
    for url, filename, checksum in _official_files(datasets, pack):
        try:
            datasets.utils.download_url(url, downloads, filename, checksum)
        except (OSError, RuntimeError, HTTPException) as error:
            with suppress(OSError):  # leave nothing behind where nothing arrived
                downloads.rmdir()
            raise DataError(
                f"can't download {url} ({error}); if there is no way to the internet from here, "
                f"bring a copy of the official files and run `torchlace data import FOLDER --name "
                f"{pack}`, or copy {target.name} from elsewhere to {target.parent}"
            ) from error
    archive = next(downloads.glob("*.tar.gz"), downloads)
    written = import_data(archive, pack, target.parent)
    shutil.rmtree(downloads)
    return written


def _official_files(datasets: Any, pack: str) -> list[tuple[str, str, str]]:
    """Address, name and MD5 of the official files, as torchvision has them."""
    if pack == "fashion_mnist":
        sets = datasets.FashionMNIST
        return [(sets.mirrors[0] + file, file, checksum) for file, checksum in sets.resources]
    if pack == "svhn":
        return [tuple(datasets.SVHN.split_list[part]) for part in ("train", "test")]
    sets = datasets.CIFAR10 if pack == "cifar10" else datasets.CIFAR100
    return [(sets.url, sets.filename, sets.tgz_md5)]


def _read_source(source: Path, *, size: int | None, skip_bad: bool) -> tuple[Arrays, str | None]:
    """Arrays of a pack from files in a known layout, and the name of the set if they tell."""
    suffix = source.suffix.lower()
    if suffix == ".npz":
        return packs.read_pack(source), source.stem
    if source.is_dir():
        found = _search(source)
    elif suffix == ".csv":
        found = None
    else:
        archive = source.name.endswith(_ARCHIVES)
        files = _archive_files(source) if archive else _folder_files(source.parent)
        found = _recognise(files, source if archive else source.parent)
        if found is None:
            raise DataError(
                f"{source}: no layout that is known; CIFAR, SVHN, IDX, class folders, a CSV of "
                "paths and labels or a .npz are"
            )
    if found is not None:
        return found
    return _pack(load_data(source.absolute(), size=size, skip_bad=skip_bad)), source.resolve().stem


def _search(folder: Path) -> tuple[Arrays, str | None] | None:
    """Read the one set of a published layout that a folder holds, up to two levels down."""
    for depth in range(3):
        subs = sorted(folder.glob("*/" * depth)) if depth else [folder]
        read = ((sub, _recognise(_folder_files(sub), sub)) for sub in subs)
        hits = [(sub, found) for sub, found in read if found is not None]
        if len(hits) > 1:
            held = ", ".join(str(sub) for sub, _ in hits)
            raise DataError(f"{folder}: holds several sets; give the folder of one: {held}")
        if hits:
            return hits[0][1]
    return None


def _recognise(files: Files, source: Path) -> tuple[Arrays, str | None] | None:
    """Read files if they are of a published layout."""
    try:
        for telling, reader, name in LAYOUTS:
            if telling <= set(files):
                return reader(files), name
        arrays = read_idx(files)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error
    if arrays is None:
        return None
    # IDX files don't say what they show; the digest of the official images does.
    train, test = (
        MemoryImages(packs.to_tensor(arrays[f"x_{part}"]), torch.from_numpy(arrays[f"y_{part}"]))
        for part in ("train", "test")
    )
    known = identify(digest_of(train, test))
    return arrays, known[0] if known else None


def _folder_files(folder: Path) -> Files:
    return {path.name: path.read_bytes for path in folder.iterdir() if path.is_file()}


def _archive_files(path: Path) -> Files:
    """Files of a tar archive, read without unpacking anything to disk."""
    try:
        with tarfile.open(path) as archive:
            contents, total = {}, 0
            for member in filter(tarfile.TarInfo.isfile, archive):
                total += member.size
                require_memory(path, total, DataError)
                file: Any = archive.extractfile(member)
                contents[Path(member.name).name] = file.read()
    except DataError:
        raise
    except Exception as error:  # tarfile and zlib raise whatever a broken file leads them to
        raise DataError(f"{path}: not a readable archive ({error})") from error
    return {name: partial(bytes, content) for name, content in contents.items()}


def _pack(data: ImageData) -> Arrays:
    arrays: Arrays = {"class_names": np.array(data.class_names)}
    for part, images in (("train", data.train), ("test", data.test)):
        if not isinstance(images, MemoryImages):
            raise DataError(
                f"{data.name}: too large for a pack, which is held in memory; train on the folder "
                f"or CSV itself, or import it at a smaller {setting('size')}"
            )
        arrays[f"x_{part}"] = packs.to_array(images.images)
        arrays[f"y_{part}"] = images.labels.numpy()
    return arrays
