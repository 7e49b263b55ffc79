"""Images of any source, ready to train on, and the digest of a set."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlace._checks import check_count
from torchlace._files import require_memory
from torchlace._text import setting
from torchlace.data import packs
from torchlace.data.decode import DataError, resize_and_crop
from torchlace.data.files import Collected, FileImages, collect, subset
from torchlace.data.first import first_classes, take_first
from torchlace.data.images import ImageData, Images, MemoryImages, stratified_split
from torchlace.data.listing import Listing, list_csv, list_folder
from torchlace.data.sources import KNOWN, NEVER_MIRRORED, Loader, find_files, find_loader

# Indices of the images to train on and to test on, drawn by their labels.
Drawn = tuple[Tensor, Tensor]
Draw = Callable[[Tensor], Drawn]

MEMORY_LIMIT = 2 << 30
# So many images at a time are looked at, where all are.
_STEP = 1024


def load_data(
    source: str | Path,
    root: Path | str | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    mixed_size: int | tuple[int, int] | None = None,
    skip_bad: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
) -> ImageData:
    """Images to train and to test on.

    Args:
        source: a known name (``digits``, ``fashion_mnist``, ``cifar10``, ``svhn``, ``cifar100``,
            ``cifar100-coarse``), a name that was registered (see :func:`register`), the name of an
            imported pack, or the path of a .npz pack, of a folder of class folders (possibly below
            ``train`` and ``test`` or ``val``), or of a CSV with the columns path, label and,
            optionally, split. ``SOURCE:50@1993`` is its first 50 classes in the order of
            ``numpy.random.RandomState(1993).permutation``.
        root: where packs live; ``$TORCHLACE_DATA`` or ``~/.cache/torchlace`` by default.
        size: height and width to bring the images to, such as ``(32, 48)``, or the side of a
            square: they are resized in their proportions to cover it, and the centre is cut out.
            By default packs keep their size, and files get the one that nine of ten have; 224 × 224
            if there is none, or it has a side of more than 512 pixels.
        mixed_size: what all files get, likewise, if any two of them differ in size or have a side
            of more than 512 pixels.
        skip_bad: go on without image files that can't be read, listed in ``skipped``; by default
            they are an error.
        test_fraction: how much of each class to test on, where the source doesn't say. The
            digits' own test split is fixed.
        seed: of that split. It is not the seed of a run: runs that are compared share it.
        memory_limit: bytes up to which decoded image files are held in memory; beyond, they are
            streamed.

    Raises:
        MissingDataError: if there is nothing of that name.
        DataError: if it can't be used; the message says why.

    Example:
        >>> data = load_data("digits")
        >>> len(data.train), len(data.test), data.size, data.mirror
        (1438, 359, (8, 8), False)
        >>> load_data("digits", size=(16, 12)).size
        (16, 12)
    """
    wanted = None if size is None else _sides("size", size)
    mixed = None if mixed_size is None else _sides("mixed_size", mixed_size)
    name = str(source)
    if (some := first_classes(name)) is not None:
        options: dict[str, Any] = {"test_fraction": test_fraction, "seed": seed}
        options |= {"skip_bad": skip_bad, "memory_limit": memory_limit}
        whole = load_data(some.whole, root, size=size, mixed_size=mixed_size, **options)
        return _finished(take_first(whole, some.number, some.order), None)
    loader = find_loader(name)

    def draw(labels: Tensor) -> Drawn:
        return stratified_split(labels, test_fraction, seed)

    if loader is not None:
        data = _from_loader(name, loader, draw)
    else:
        path = find_files(name, packs.data_root(root))
        if path.is_dir() or path.suffix.lower() == ".csv":
            listing = list_folder(path) if path.is_dir() else list_csv(path)
            collected = collect(listing, wanted, mixed, skip_bad, memory_limit)
            data = _from_files(path.resolve().stem, listing, collected, draw)
        else:
            name = name if name in KNOWN else path.stem
            data = _from_arrays(name, str(path), packs.read_pack(path), draw)
    return _finished(data, wanted)


def digest_of(train: Images, test: Images) -> str:
    """Digest of a whole set: images and labels of both parts, in any order within a part."""
    parts = [part_digest(part) for part in (train, test)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]


def part_digest(images: Images) -> str:
    """Digest of images and labels in any order; of streamed files, their names and sizes count."""
    if isinstance(images, FileImages):
        said = (f"{'/'.join(path.parts[-2:])} {path.stat().st_size}" for path in images.paths)
        marks = [hashlib.sha256(os.fsencode(each)).digest() for each in said]
    else:
        marks = image_hashes(images)
    labelled = sorted(
        mark + label.to_bytes(8, "little", signed=True)
        for mark, label in zip(marks, images.labels.tolist(), strict=True)
    )
    return hashlib.sha256(b"".join(labelled)).hexdigest()[:32]


def image_hashes(images: Images) -> list[bytes]:
    """A hash of each image: of its shape and pixels, or of its file's bytes where it streams."""
    if isinstance(images, FileImages):
        return [hashlib.sha256(path.read_bytes()).digest() for path in images.paths]
    head = repr(images.shape).encode()
    hashes: list[bytes] = []
    for part in torch.arange(len(images)).split(_STEP):
        rows = images.batch(part).flatten(1).numpy()
        hashes.extend(hashlib.sha256(head + row.tobytes()).digest() for row in rows)
    return hashes


def _sides(name: str, given: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width, of which one number gives both."""
    sides = tuple(given) if isinstance(given, (tuple, list)) else (given, given)
    if len(sides) != 2:
        raise ValueError(
            f"{name} must be a height and a width, such as (32, 48), or the side of a square, got "
            f"{given!r}"
        )
    return check_count(name, sides[0]), check_count(name, sides[1])


def _from_loader(name: str, loader: Loader, draw: Draw) -> ImageData:
    """The set that a registered loader returns, checked like a pack."""
    source = f"the data set {name!r}"
    try:
        given = loader()
        if isinstance(given, Mapping):  # copied only where torch could not take them as they are
            given = {key: np.require(each, requirements=["C", "W"]) for key, each in given.items()}
    except (DataError, MemoryError):
        raise
    except Exception as error:  # whatever is wrong with code of a user's own
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{source} can't be loaded: its loader raised {reason}") from error
    if isinstance(given, ImageData):
        _check_images(given, source)
        names = _class_names(source, given.class_names, given.train, given.test)
        return dataclasses.replace(given, name=name, class_names=names)
    if not isinstance(given, dict) or not set(given) <= set(packs.NAMES):
        held = sorted(map(str, given)) if isinstance(given, dict) else [type(given).__name__]
        raise DataError(
            f"{source}: its loader must return an ImageData or a dictionary of x_train, y_train, "
            f"x_test, y_test and, optionally, class_names; it returns {', '.join(held)}"
        )
    packs.check_arrays(given, source)
    return _from_arrays(name, source, given, draw)


def _check_images(data: ImageData, source: str) -> None:
    for part, images in (("train", data.train), ("test", data.test)):
        labels = getattr(images, "labels", None)
        if not isinstance(images, Images) or getattr(labels, "dtype", None) != torch.int64:
            raise DataError(
                f"{source}: {part} must be MemoryImages, FileImages or a class with their labels "
                f"(int64), shape, len() and batch(), got {type(images).__name__}"
            )
        packs.check_labels(images.labels.numpy(), f"{part}.labels", len(images), source)
        first = images.batch(torch.arange(1))
        if first.dtype != torch.uint8 or first.shape != (1, *data.train.shape):
            raise DataError(
                f"{source}: a batch of one image of {part} must be uint8 of shape "
                f"{(1, *data.train.shape)}, got {first.dtype} {tuple(first.shape)}"
            )
    packs.check_names(np.array(data.class_names or ("",)), "class_names", source)


def _from_arrays(name: str, source: str, arrays: packs.Arrays, draw: Draw) -> ImageData:
    suffix = "_coarse" if name == "cifar100-coarse" else ""
    if suffix and "y_train_coarse" not in arrays:
        raise DataError(f"{source}: no coarse labels (y_train_coarse, y_test_coarse)")

    def part(which: str) -> MemoryImages:
        labels = torch.from_numpy(arrays[f"y_{which}{suffix}"].astype(np.int64))
        return MemoryImages(packs.to_tensor(arrays[f"x_{which}"]), labels)

    train: Images = part("train")
    drawn = "x_test" not in arrays
    if drawn:
        train, test = (subset(train, indices) for indices in draw(train.labels))
        _require_tests(source, test)
    else:
        test = part("test")
    given = () if suffix else arrays.get("class_names", arrays.get("fine_names", ()))
    known = KNOWN[name].class_names if name in KNOWN else ()
    names = _class_names(source, given, train, test, known)
    mirror = name.lower() not in NEVER_MIRRORED
    return ImageData(name, train, test, names, mirror, drawn=drawn)


def _class_names(
    source: str, given: Any, train: Images, test: Images, known: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """A name for every label: as given, else as known, else the label itself."""
    count = 1 + max(int(images.labels.max()) for images in (train, test))
    if count < 2:
        raise DataError(f"{source}: only one class; there is nothing to tell apart")
    if 0 < len(given) < count:
        raise DataError(
            f"{source}: labels go up to {count - 1}, but there are only {len(given)} class_names; "
            "name every class, or leave class_names out"
        )
    # `check` reports what a known set has beyond its names; here every label needs some name.
    names = tuple(map(str, given)) or known
    return names + tuple(str(label) for label in range(len(names), count))


def _from_files(name: str, listing: Listing, collected: Collected, draw: Draw) -> ImageData:
    images, good, bad, resized = collected
    if listing.testing is None:
        rest, held_out = (good[indices] for indices in draw(images.labels[good]))
    else:
        rest, held_out = good[~listing.testing[good]], good[listing.testing[good]]
    counts = torch.bincount(images.labels[rest], minlength=len(listing.class_names)).tolist()
    if 0 in counts:
        raise DataError(
            f"{name}: no readable training image is left of the class "
            f"{listing.class_names[counts.index(0)]!r}; first of the others: {bad[0]}"
        )
    train, test = subset(images, rest), subset(images, held_out)
    _require_tests(name, test)
    mirror, drawn = name.lower() not in NEVER_MIRRORED, listing.testing is None
    skipped = tuple(map(str, bad))
    return ImageData(name, train, test, listing.class_names, mirror, "", skipped, drawn, resized)


def _finished(data: ImageData, size: tuple[int, int] | None) -> ImageData:
    """The same set at the size that is asked for, with its digest."""
    if size is None or data.size == size:
        return dataclasses.replace(data, digest=data.digest or digest_of(data.train, data.test))
    pixels = (len(data.train) + len(data.test)) * data.channels * size[0] * size[1]
    advice = f"choose a smaller {setting('image_size')}"
    require_memory(f"{data.name} at {size[0]} × {size[1]}", pixels, DataError, advice=advice)
    parts = []
    for images in (data.train, data.test):
        batches = (images.batch(rows) for rows in torch.arange(len(images)).split(_STEP))
        resized = torch.cat([resize_and_crop(batch, *size) for batch in batches])
        parts.append(MemoryImages(resized, images.labels))
    train, test = parts
    return dataclasses.replace(data, train=train, test=test, digest=digest_of(train, test))


def _require_tests(source: str, test: Images) -> None:
    if not len(test):
        raise DataError(f"{source}: nothing to test on; give every class two images or more")
