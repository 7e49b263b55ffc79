"""Images of any source, ready to train on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch

from torchlace._checks import check_count
from torchlace._sizes import require_memory
from torchlace._text import setting
from torchlace._values import nearest
from torchlace.data.collect import Collected, collect, subset
from torchlace.data.digest import digest_of
from torchlace.data.errors import DataError, MissingDataError, require
from torchlace.data.images import ImageData, Images, MemoryImages
from torchlace.data.known import KNOWN, NEVER_MIRRORED
from torchlace.data.listing import Listing, list_csv, list_folder
from torchlace.data.packs import data_root, read_pack, to_tensor
from torchlace.data.resize import resize_square
from torchlace.data.splits import stratified_split

MEMORY_LIMIT = 2 << 30
# What image files of different sizes are brought to.
MIXED_SIZE = (224, 224)
_FILES = (".npz", ".csv")


def load_data(
    source: str | Path,
    root: Path | str | None = None,
    *,
    size: int | None = None,
    mixed_size: tuple[int, int] = MIXED_SIZE,
    skip_bad: bool = False,
    test_fraction: float = 0.2,
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
) -> ImageData:
    """Images to train and to test on.

    Args:
        source: a known name (``digits``, ``fashion_mnist``, ``cifar10``, ``svhn``, ``cifar100``,
            ``cifar100-coarse``), the name of an imported pack, or the path of a .npz pack, of a
            folder of class folders (possibly below ``train`` and ``test`` or ``val``), or of a CSV
            with the columns path, label and, if it likes, split.
        root: where packs live; ``$TORCHLACE_DATA`` or ``~/.cache/torchlace`` by default.
        size: height and width to bring the images to: the shorter side is resized, the centre cut
            out. By default images keep their size, unless they are files that differ in size or
            have a side of more than 512 pixels.
        mixed_size: height and width of such files.
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
    """
    if size is not None:
        check_count("size", size)
    for side in mixed_size:
        check_count("mixed_size", side)
    name = str(source)
    if name == "digits":
        return _from_arrays(name, *_digits(), KNOWN[name].class_names, size)
    path = _find(name, data_root(root))
    if path.is_dir() or path.suffix.lower() == ".csv":
        listing = list_folder(path) if path.is_dir() else list_csv(path)
        collected = collect(listing, size, mixed_size, skip_bad, memory_limit)
        return _from_listing(path.resolve().stem, listing, collected, test_fraction, seed)
    name = name if name in KNOWN else path.stem
    return _from_pack(name, path, size, test_fraction, seed)


def absolute_source(source: str) -> str:
    """The same source of :func:`load_data` from any folder: paths made absolute, names left alone.

    Example:
        >>> absolute_source("cifar10"), absolute_source("/")
        ('cifar10', '/')
    """
    path = Path(source).expanduser()
    return source if source in KNOWN or not path.exists() else os.path.abspath(path)


def near_sources(name: str, root: Path | str | None = None) -> list[str]:
    """Sets, packs and paths whose names are like this one, for messages.

    Example:
        >>> near_sources("CIFAR-10")[0]
        'cifar10'
    """
    path = Path(name).expanduser()
    beside = (each for each in _entries(path.parent) if each.is_dir() or each.suffix in _FILES)
    packs = (pack.stem for pack in data_root(root).glob("*.npz"))
    names = {each.name: str(each) for each in beside} | {each: each for each in (*packs, *KNOWN)}
    return [names[each] for each in nearest(path.name, names, alike=0.6)]


def _find(name: str, root: Path) -> Path:
    if name in KNOWN:
        path = root / f"{KNOWN[name].pack}.npz"
        if not path.is_file():
            here = ""
            if Path(name).exists():
                here = f"; the {name} here is meant by {setting('data', f'./{name}')}"
            raise MissingDataError(
                f"no {path}: get it by `torchlace data fetch {KNOWN[name].pack}`, or from a copy "
                f"you have by `torchlace data import SOURCE --name {KNOWN[name].pack}`; "
                f"{setting('root')} or TORCHLACE_DATA says where packs live{here}"
            )
        return path
    path, pack = Path(name).expanduser(), root / f"{name}.npz"
    if path.is_dir() or (path.is_file() and path.suffix.lower() in _FILES):
        return path
    if path.is_file():
        raise DataError(f"{path}: neither a folder of class folders nor a .npz nor a .csv")
    if pack.is_file():
        return pack
    near = near_sources(name, root)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise MissingDataError(
        f"no data {name!r}: {hint}It is neither a path nor a pack in {root}. "
        f"Known: {', '.join(KNOWN)}"
    )


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError:
        return []


def _digits() -> tuple[Images, Images]:
    """The 1,797 digits of scikit-learn, their 17 grey levels spread over 0 to 255."""
    datasets = require("sklearn.datasets", "scikit-learn", "the data set digits")
    bunch = datasets.load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8))[:, None]
    return _split(MemoryImages(images, torch.from_numpy(bunch.target)), 0.2, 0)


def _from_pack(
    name: str, path: Path, size: int | None, test_fraction: float, seed: int
) -> ImageData:
    arrays = read_pack(path)
    suffix = "_coarse" if name == "cifar100-coarse" else ""
    if suffix and "y_train_coarse" not in arrays:
        raise DataError(f"{path}: no coarse labels (y_train_coarse, y_test_coarse)")

    def part(which: str) -> MemoryImages:
        labels = torch.from_numpy(arrays[f"y_{which}{suffix}"].astype(np.int64))
        return MemoryImages(to_tensor(arrays[f"x_{which}"]), labels)

    drawn = "x_test" not in arrays
    if not drawn:
        train: Images = part("train")
        test: Images = part("test")
    else:
        train, test = _split(part("train"), test_fraction, seed)
        _require_tests(str(path), len(test))
    count = 1 + max(int(images.labels.max()) for images in (train, test))
    if count < 2:
        raise DataError(f"{path}: only one class; there is nothing to tell apart")
    given = arrays.get("class_names", arrays.get("fine_names")) if not suffix else None
    names = tuple(map(str, given)) if given is not None else ()
    if 0 < len(names) < count:
        raise DataError(
            f"{path}: labels go up to {count - 1}, but there are only {len(names)} class_names; "
            "name every class, or leave class_names out"
        )
    if not names and name in KNOWN:
        names = KNOWN[name].class_names
    # `check` reports what a known set has beyond its names; here every label needs some name.
    names += tuple(str(label) for label in range(len(names), count))
    return _from_arrays(name, train, test, names, size, drawn=drawn)


def _from_arrays(
    name: str,
    train: Images,
    test: Images,
    class_names: tuple[str, ...],
    size: int | None,
    *,
    drawn: bool = False,
) -> ImageData:
    if size is not None:
        pixels = (len(train) + len(test)) * train.shape[0] * size**2
        advice = f"choose a smaller {setting('image_size')}"
        require_memory(f"{name} at {size} × {size}", pixels, DataError, advice=advice)
        train, test = (
            MemoryImages(resize_square(part.batch(torch.arange(len(part))), size), part.labels)
            for part in (train, test)
        )
    mirror = name.lower() not in NEVER_MIRRORED
    digest = digest_of(train, test)
    return ImageData(name, train, test, class_names, mirror, digest, drawn=drawn)


def _from_listing(
    name: str,
    listing: Listing,
    collected: Collected,
    test_fraction: float,
    seed: int,
) -> ImageData:
    good, labels = collected.good, torch.tensor(listing.labels)[collected.good]
    if listing.testing is None:
        rest, held_out = stratified_split(labels, test_fraction, seed)
    else:
        testing = torch.tensor(listing.testing)[good]
        rest, held_out = (~testing).nonzero().flatten(), testing.nonzero().flatten()
    counts = torch.bincount(labels[rest], minlength=len(listing.class_names)).tolist()
    empty = [label for label, count in enumerate(counts) if not count]
    if empty:
        raise DataError(
            f"{name}: no readable training image is left of the class "
            f"{listing.class_names[empty[0]]!r}; first of the others: {collected.bad[0]}"
        )
    _require_tests(name, len(held_out))
    train, test = (subset(collected.images, good[part]) for part in (rest, held_out))
    return ImageData(
        name,
        train,
        test,
        listing.class_names,
        name.lower() not in NEVER_MIRRORED,
        digest_of(train, test),
        tuple(map(str, collected.bad)),
        drawn=listing.testing is None,
    )


def _require_tests(name: str, count: int) -> None:
    if not count:
        raise DataError(f"{name}: nothing to test on; give every class two images or more")


def _split(images: MemoryImages, fraction: float, seed: int) -> tuple[Images, Images]:
    rest, held_out = stratified_split(images.labels, fraction, seed)
    return subset(images, rest), subset(images, held_out)
