"""Readers of the formats that image sets are published in; each returns the arrays of a pack.

CIFAR's batches are pickles, and a pickle is a program: it may import and call whatever it names.
They are read without executing anything: only the names that a pickled numpy array needs are
resolved, to stand-ins that do nothing but remember their arguments; any other name is refused.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import pickletools
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from torchlace._files import require_memory
from torchlace.data.decode import DataError, require
from torchlace.data.packs import Arrays

# The files of a folder or archive by name, each read when called.
Files = Mapping[str, Callable[[], bytes]]

_PIXELS = 3 * 32 * 32
_IDX_NAME = re.compile(r"(train|t10k)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
_MOST_TUPLES = 1_000
_KINDS = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"}


class _Cifar(NamedTuple):
    """What the files of a version hold."""

    parts: dict[str, tuple[str, ...]]  # the batches of each
    labels: dict[str, str]  # key in a batch of each suffix of an array
    names: tuple[str, str]  # the file of the names of classes, and their key in it
    binary_names: str  # that file in the binary version


_CIFAR10 = _Cifar(
    {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
    {"": "labels"},
    ("batches.meta", "label_names"),
    "batches.meta.txt",
)
_CIFAR100 = _Cifar(
    {"train": ("train",), "test": ("test",)},
    {"_coarse": "coarse_labels", "": "fine_labels"},
    ("meta", "fine_label_names"),
    "fine_label_names.txt",
)


def _read_cifar_python(kind: _Cifar, files: Files) -> Arrays:
    """CIFAR-10 or CIFAR-100 in Python's pickles, without executing anything they contain."""
    arrays = _cifar_arrays(kind, lambda name: read_pickle(_take(files, name), name))
    name, key = kind.names
    if name in files:
        names = _field(read_pickle(files[name](), name), key, name)
        if not isinstance(names, list):
            raise DataError(f"{name}: {key} is not a list of texts")
        arrays["class_names"] = np.array([_decoded(each, name) for each in names])
    return arrays


def _read_cifar_binary(kind: _Cifar, files: Files) -> Arrays:
    """CIFAR-10 or CIFAR-100 in their binary version: of each image its labels, then its pixels."""
    length = len(kind.labels) + _PIXELS

    def read(name: str) -> dict[str, Any]:
        content = _take(files, f"{name}.bin")
        if not content or len(content) % length:
            raise DataError(
                f"{name}.bin: {len(content)} bytes are not a whole number of images of {length} "
                "bytes; it is cut off or another format"
            )
        records = np.frombuffer(content, np.uint8).reshape(-1, length)
        labels = dict(zip(kind.labels.values(), records.T, strict=False))
        return {**labels, "data": records[:, -_PIXELS:]}

    arrays = _cifar_arrays(kind, read)
    if kind.binary_names in files:
        arrays["class_names"] = np.array(files[kind.binary_names]().decode("latin1").split())
    return arrays


def _cifar_arrays(kind: _Cifar, read: Callable[[str], dict[str, Any]]) -> Arrays:
    arrays: Arrays = {}
    for part, names in kind.parts.items():
        batches = {name: read(name) for name in names}
        images = [_cifar_images(_field(each, "data", name), name) for name, each in batches.items()]
        arrays[f"x_{part}"] = np.concatenate(images)
        for suffix, key in kind.labels.items():
            labels = [_labels(_field(each, key, name), name) for name, each in batches.items()]
            arrays[f"y_{part}{suffix}"] = np.concatenate(labels)
    return arrays


def _read_svhn(files: Files) -> Arrays:
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


# The files that tell a layout, its reader and the name of the set.
LAYOUTS: Sequence[tuple[set[str], Callable[[Files], Arrays], str]] = (
    ({"data_batch_1"}, partial(_read_cifar_python, _CIFAR10), "cifar10"),
    ({"train", "test", "meta"}, partial(_read_cifar_python, _CIFAR100), "cifar100"),
    ({"data_batch_1.bin"}, partial(_read_cifar_binary, _CIFAR10), "cifar10"),
    ({"train.bin", "test.bin"}, partial(_read_cifar_binary, _CIFAR100), "cifar100"),
    ({"train_32x32.mat"}, _read_svhn, "svhn"),
)


def read_idx(files: Files) -> Arrays | None:
    """MNIST, Fashion-MNIST and their kind in IDX, gzipped or not; None where there is no IDX."""
    arrays: Arrays = {}
    for name in sorted(files):
        match = _IDX_NAME.fullmatch(name)
        if match:
            key = f"{'x' if match[2] == 'images' else 'y'}_{match[1].replace('t10k', 'test')}"
            if key not in arrays:  # an unpacked file goes before its .gz
                arrays[key] = _idx(files[name](), name, 3 if match[2] == "images" else 1)
    missing = {"x_train", "y_train", "x_test", "y_test"} - set(arrays)
    if arrays and missing:
        raise DataError(f"IDX files are missing: {', '.join(sorted(missing))}")
    return arrays or None


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """A pickled dictionary of lists, texts, numbers and integer arrays; all else is refused."""
    try:
        _check_program(content)
        value = _Reader(content, name).load()
    except DataError:
        raise
    except Exception as error:  # a broken pickle raises anything, from EOFError to KeyError
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{name}: not a readable pickle ({reason})") from None
    if not isinstance(value, dict):
        raise DataError(f"{name}: holds a {type(value).__name__}, not CIFAR's dictionary")
    return {_decoded(key, name): _array(entry, name) for key, entry in value.items()}


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._name = name
        self._allowed = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module.replace("numpy._core", "numpy.core"), name]
        except KeyError:
            raise DataError(
                f"{self._name}: refused, the pickle asks for {module}.{name}, which CIFAR's "
                "batches don't need; nothing of it was executed. Take the file from its official "
                "source"
            ) from None


class _Recorded:
    """What the pickle said about an array: the arguments and the state, nothing made of them."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


def _stand_ins() -> dict[tuple[str, str], Callable[..., object]]:
    # New ones for every file: a pickle can set attributes of what it is given.
    class Recorded(_Recorded):
        pass

    def encode(text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise ValueError(f"bytes in the encoding {encoding!r}")
        return text.encode("latin1")

    return {
        ("numpy.core.multiarray", "_reconstruct"): lambda *_: Recorded(),
        ("numpy", "ndarray"): lambda *_: None,
        ("numpy", "dtype"): Recorded,
        ("_codecs", "encode"): encode,
    }


def _array(entry: object, name: str) -> object:
    """An array from what was recorded of it; anything else as it is."""
    if not isinstance(entry, _Recorded):
        return entry
    try:
        _, shape, kind, fortran, raw = entry.state
        code = str(kind.arguments[0])
        if code not in _KINDS:
            raise ValueError(f"an array of type {code}")
        content = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        flat: npt.NDArray[Any] = np.frombuffer(content, np.dtype(code).newbyteorder("<"))
        return flat.reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(f"{name}: holds an array that can't be read ({error})") from None


def _check_program(content: bytes) -> None:
    """Raise where a pickle would take memory or the stack beyond what its length explains."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(content):
        # Python makes room for as many remembered objects as the largest of their numbers says.
        if "PUT" in opcode.name and int(str(argument)) > len(content):
            raise ValueError(f"it numbers an object {argument}")
        tuples += "TUPLE" in opcode.name
        if tuples > _MOST_TUPLES:
            raise ValueError(f"it holds more than {_MOST_TUPLES} tuples, perhaps in one another")


def _decoded(text: object, name: str) -> str:
    """A text, which Python 2 pickled as bytes."""
    if not isinstance(text, str | bytes):
        raise DataError(f"{name}: holds a {type(text).__name__} where a text is expected")
    return text.decode("latin1") if isinstance(text, bytes) else text


def _take(files: Files, name: str) -> bytes:
    if name not in files:
        raise DataError(f"the file {name} is missing; take the whole set from its source")
    return files[name]()


def _field(batch: dict[str, Any], key: str, name: str) -> Any:
    if key not in batch:
        raise DataError(f"{name}: no {key}, only {', '.join(batch)}; it is not a batch of CIFAR")
    return batch[key]


def _cifar_images(data: Any, name: str) -> npt.NDArray[np.uint8]:
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (_PIXELS,):
        raise DataError(f"{name}: the images are not uint8 of shape (N, {_PIXELS})")
    return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _labels(values: Any, name: str) -> npt.NDArray[np.int64]:
    try:
        return np.array([int(value) for value in values], np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name}: labels are not a list of numbers ({error})") from error


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
