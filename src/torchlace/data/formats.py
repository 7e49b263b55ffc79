"""Readers of the formats that image sets are published in; each returns the arrays of a pack."""

from __future__ import annotations

import gzip
import io
import math
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchlace._sizes import require_memory
from torchlace.data.arrays import Arrays
from torchlace.data.errors import DataError, require
from torchlace.data.pickles import decoded, read_pickle

Files = Mapping[str, Callable[[], bytes]]

_PIXELS = 3 * 32 * 32
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_IDX_NAME = re.compile(r"(train|t10k)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")


def folder_files(folder: Path) -> Files:
    """Files of a folder by name, each read when called."""
    return {path.name: path.read_bytes for path in folder.iterdir() if path.is_file()}


def archive_files(path: Path) -> Files:
    """Files of a tar archive by name, read without unpacking anything to disk."""
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


def read_cifar_python(files: Files) -> Arrays:
    """CIFAR-10 or CIFAR-100 in Python's pickles, without executing anything they contain."""
    if "data_batch_1" in files:
        batches = [read_pickle(_take(files, name), name) for name in _BATCHES]
        test = read_pickle(_take(files, "test_batch"), "test_batch")
        names = _pickled_names(files, "batches.meta", "label_names")
        return {**_cifar10(batches, "train"), **_cifar10([test], "test"), **names}
    arrays: Arrays = {}
    for part in ("train", "test"):
        batch = read_pickle(_take(files, part), part)
        arrays[f"x_{part}"] = _cifar_images(_field(batch, "data", part), part)
        arrays[f"y_{part}"] = _labels(_field(batch, "fine_labels", part))
        arrays[f"y_{part}_coarse"] = _labels(_field(batch, "coarse_labels", part))
    return {**arrays, **_pickled_names(files, "meta", "fine_label_names")}


def read_cifar_binary(files: Files) -> Arrays:
    """CIFAR-10 or CIFAR-100 in their binary version."""
    if "data_batch_1.bin" in files:
        parts = {"train": tuple(f"{name}.bin" for name in _BATCHES), "test": ("test_batch.bin",)}
        suffixes, listed = [""], "batches.meta.txt"
    else:
        parts = {"train": ("train.bin",), "test": ("test.bin",)}
        suffixes, listed = ["_coarse", ""], "fine_label_names.txt"
    head = len(suffixes)
    arrays: Arrays = {}
    for part, names in parts.items():
        records = np.concatenate([_records(_take(files, name), name, head) for name in names])
        arrays[f"x_{part}"] = _cifar_images(records[:, head:], part)
        for column, suffix in enumerate(suffixes):
            arrays[f"y_{part}{suffix}"] = records[:, column].copy()
    if listed in files:
        arrays["class_names"] = np.array(files[listed]().decode("latin1").split())
    return arrays


def read_svhn(files: Files) -> Arrays:
    """SVHN's cropped digits in MATLAB's format; its label 10 is the digit 0."""
    arrays: Arrays = {}
    loadmat = require("scipy.io", "scipy", "reading SVHN").loadmat
    for part in ("train", "test"):
        name = f"{part}_32x32.mat"
        content = _take(files, name)
        try:
            held = loadmat(io.BytesIO(content), variable_names=("X", "y"))
            images, labels = held["X"], held["y"].reshape(-1)
        except Exception as error:  # scipy raises anything on a broken file
            raise DataError(f"{name}: not SVHN's .mat ({type(error).__name__}: {error})") from error
        if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] != len(labels):
            raise DataError(f"{name}: X is {images.dtype} {images.shape}, y {labels.shape}")
        arrays[f"x_{part}"] = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
        arrays[f"y_{part}"] = np.where(labels == 10, 0, labels).astype(np.int64)
    return arrays


def read_idx(files: Files) -> Arrays:
    """MNIST, Fashion-MNIST and their kind in IDX, gzipped or not."""
    arrays: Arrays = {}
    for name, (part, kind) in idx_names(files).items():
        values = _idx(files[name](), name, 3 if kind == "images" else 1)
        key = ("x_" if kind == "images" else "y_") + {"t10k": "test"}.get(part, part)
        arrays[key] = values
    missing = {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if missing:
        raise DataError(f"IDX files are missing: {', '.join(sorted(missing))}")
    return arrays


def idx_names(files: Files) -> dict[str, tuple[str, str]]:
    """Names of IDX files → part and kind; an unpacked file goes before its .gz."""
    found: dict[tuple[str, str], str] = {}
    for name in sorted(files):
        match = _IDX_NAME.fullmatch(name)
        if match:
            found.setdefault((match[1], match[2]), name)
    return {name: key for key, name in found.items()}


def _take(files: Files, name: str) -> bytes:
    if name not in files:
        raise DataError(f"the file {name} is missing; take the whole set from its source")
    return files[name]()


def _field(batch: dict[str, Any], key: str, name: str) -> Any:
    if key not in batch:
        raise DataError(f"{name}: no {key}, only {', '.join(batch)}; it is not a batch of CIFAR")
    return batch[key]


def _cifar10(batches: list[dict[str, Any]], part: str) -> Arrays:
    images = [_cifar_images(_field(batch, "data", part), part) for batch in batches]
    labels = [_labels(_field(batch, "labels", part)) for batch in batches]
    return {f"x_{part}": np.concatenate(images), f"y_{part}": np.concatenate(labels)}


def _cifar_images(data: Any, name: str) -> npt.NDArray[np.uint8]:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DataError(f"{name}: the images are not uint8 of shape (N, {_PIXELS})")
    return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _labels(values: Any) -> npt.NDArray[np.int64]:
    try:
        return np.array([int(value) for value in values], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"labels are not a list of numbers ({error})") from error


def _pickled_names(files: Files, name: str, key: str) -> Arrays:
    if name not in files:
        return {}
    names = _field(read_pickle(files[name](), name), key, name)
    if not isinstance(names, list):
        raise DataError(f"{name}: {key} is not a list of texts")
    return {"class_names": np.array([decoded(each, name) for each in names])}


def _records(content: bytes, name: str, head: int) -> npt.NDArray[np.uint8]:
    length = head + _PIXELS
    if not content or len(content) % length:
        raise DataError(
            f"{name}: {len(content)} bytes are not a whole number of images of {length} bytes; it "
            "is cut off or another format"
        )
    return np.frombuffer(content, np.uint8).reshape(-1, length)


def _idx(content: bytes, name: str, dims: int) -> npt.NDArray[np.uint8]:
    zipped = content[:2] == b"\x1f\x8b"
    file: Any = gzip.GzipFile(fileobj=io.BytesIO(content)) if zipped else io.BytesIO(content)
    try:
        head = file.read(4 + 4 * dims)
        if len(head) < 4 + 4 * dims or head[:4] != bytes((0, 0, 8, dims)):
            raise DataError(f"{name}: not an IDX file of bytes in {dims} dimensions")
        shape = tuple(int(size) for size in np.frombuffer(head, ">u4", dims, 4))
        count = math.prod(shape)
        require_memory(name, count, DataError)
        body = file.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name}: not a readable gzip file ({error})") from error
    if len(body) != count:
        held = "more" if len(body) > count else f"{len(body)} bytes; it is cut off"
        raise DataError(f"{name}: says {' × '.join(map(str, shape))}, holds {held}")
    return np.frombuffer(body, np.uint8).reshape(shape).copy()


# The files that tell a layout, its reader and the name of the set.
LAYOUTS: tuple[tuple[frozenset[str], Callable[[Files], Arrays], str], ...] = (
    (frozenset({"data_batch_1"}), read_cifar_python, "cifar10"),
    (frozenset({"train", "test", "meta"}), read_cifar_python, "cifar100"),
    (frozenset({"data_batch_1.bin"}), read_cifar_binary, "cifar10"),
    (frozenset({"train.bin", "test.bin"}), read_cifar_binary, "cifar100"),
    (frozenset({"train_32x32.mat"}), read_svhn, "svhn"),
)
