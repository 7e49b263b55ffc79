"""What a name of data stands for: a known set, a registered one, a pack or a path."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlace._registry import Registry
from torchlace._text import setting
from torchlace._values import check_choice, nearest, suggestion
from torchlace.data.decode import DataError, MissingDataError, require
from torchlace.data.first import whole_source
from torchlace.data.images import ImageData, stratified_split
from torchlace.data.packs import data_root

# Sets of which a mirrored image no longer shows its class, known by name or usually called so.
NEVER_MIRRORED = frozenset({"digits", "svhn", "mnist", "emnist", "kmnist", "qmnist", "usps"})
_FILES = (".npz", ".csv")


@dataclass(frozen=True)
class KnownData:
    """A set that is known by name.

    Attributes:
        pack: name of the pack that holds it; None where it needs none.
        shape: channels, height, width.
        train, test: numbers of images.
        digests: digest of the set → what a set with this digest is.
        official: whether ``digests`` holds that of the official images, so that another digest
            means that something is wrong.
    """

    title: str
    pack: str | None
    shape: tuple[int, int, int]
    train: int
    test: int
    class_names: tuple[str, ...]
    digests: dict[str, str]
    official: bool


def _known() -> dict[str, KnownData]:
    text = files("torchlace.data").joinpath("known.json").read_text(encoding="utf-8")
    known = {}
    for name, each in json.loads(text).items():
        each.update(shape=tuple(each["shape"]), class_names=tuple(each["class_names"].split(",")))
        known[name] = KnownData(**each)
    return known


KNOWN = _known()

# What brings the images of a set that needs no pack: all of it, or the arrays that a pack has.
Loader = Callable[[], ImageData | Mapping[str, Any]]


def _digits() -> Mapping[str, Any]:
    """The 1,797 digits of scikit-learn, their 17 grey levels spread over 0 to 255."""
    bunch = require("sklearn.datasets", "scikit-learn", "the data set digits").load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    rest, held_out = stratified_split(torch.from_numpy(bunch.target), 0.2, seed=0)
    arrays = {"x_train": images[rest], "y_train": bunch.target[rest]}
    return {**arrays, "x_test": images[held_out], "y_test": bunch.target[held_out]}


LOADERS: Registry[Loader] = Registry("data set", {"digits": _digits})


def register(name: str, loader: Loader | None = None) -> Any:
    """Add a data set of your own, found by this name wherever a source is named.

    Args:
        name: what it is called; a name that is known or registered already is an error.
        loader: called without arguments each time the set is loaded. It returns an
            :class:`ImageData`, or a dictionary of the arrays of a pack: ``x_train``, ``y_train``,
            ``x_test``, ``y_test`` and, optionally, ``class_names``; without ``x_test`` and
            ``y_test``, test images are drawn. None to use this as a decorator.

    Example:
        >>> import torch
        >>> from torchlace.data import load_data
        >>> @register("noise")
        ... def noise():
        ...     images = torch.randint(256, (40, 8, 8), dtype=torch.uint8)
        ...     return {"x_train": images, "y_train": torch.arange(40) % 2}
        >>> data = load_data("noise")
        >>> len(data.train), len(data.test), data.class_names
        (32, 8, ('0', '1'))
        >>> LOADERS.forget("noise")
    """
    if name in KNOWN:
        raise ValueError(f"{name} is a known data set: register yours by another name")
    return LOADERS.register(name, loader)


def data_names() -> list[str]:
    """Names of all data sets: those known from the start, then those that were registered.

    Example:
        >>> data_names()[:3]
        ['digits', 'fashion_mnist', 'cifar10']
    """
    return [*KNOWN, *(name for name in LOADERS if name not in KNOWN)]


def identify(digest: str) -> tuple[str, str] | None:
    """Name and description of the known set with this digest, or None."""
    for name, known in KNOWN.items():
        if digest in known.digests:
            return name, known.digests[digest]
    return None


def absolute_source(source: str) -> str:
    """The same source of :func:`load_data` from any folder: paths made absolute, names left alone.

    Example:
        >>> absolute_source("cifar10"), absolute_source("/")
        ('cifar10', '/')
    """
    path = Path(source).expanduser()
    return source if source in data_names() or not path.exists() else os.path.abspath(path)


def list_data(root: Path | str | None = None) -> list[dict[str, Any]]:
    """All sets that are known, registered or imported, and whether they are here.

    Returns:
        A dictionary for each: ``name``, ``images`` and ``classes`` (how many, None if that is not
        known before it is loaded), ``what`` it is, and ``here``: the size of its pack, or what
        brings it.

    Example:
        >>> list_data()[0]["name"], list_data()[0]["here"]
        ('digits', 'embedded')
    """
    place, names = data_root(root), data_names()
    found: list[tuple[str, int | None, int | None, str, str]] = []
    for name, known in KNOWN.items():
        count, classes = known.train + known.test, len(known.class_names)
        here = "embedded"
        if known.pack is not None:
            path = place / f"{known.pack}.npz"
            here = _size(path) if path.is_file() else f"torchlace data fetch {known.pack}"
        found.append((name, count, classes, known.title, here))
    own = [name for name in names if name not in KNOWN]
    found += [(name, None, None, "registered", "its loader brings it") for name in own]
    for path in sorted(place.glob("*.npz")):
        if path.stem not in names and not path.name.startswith("."):
            found.append((path.stem, None, None, "imported", _size(path)))
    columns = ("name", "images", "classes", "what", "here")
    return [dict(zip(columns, row, strict=True)) for row in found]


def near_sources(name: str, root: Path | str | None = None) -> list[str]:
    """Sets, packs and paths whose names are like this one, for messages.

    Example:
        >>> near_sources("CIFAR-10")[0]
        'cifar10'
    """
    path = Path(name).expanduser()
    try:
        beside = [each for each in sorted(path.parent.iterdir()) if not each.name.startswith(".")]
    except OSError:
        beside = []
    found = {each.name: str(each) for each in beside if each.is_dir() or each.suffix in _FILES}
    packs = (pack.stem for pack in data_root(root).glob("*.npz"))
    found |= {each: each for each in (*packs, *data_names())}
    return [found[each] for each in nearest(path.name, found)]


def check_source(source: str, root: Path | str | None = None, *, what: str = "data set") -> str:
    """Return ``source`` if it names a set, a pack or a path, or raise with the nearest ones.

    Nothing is loaded, and the pack of a known set may have to be fetched yet. ``what`` is how the
    message calls the source.

    Example:
        >>> check_source("cifar10")
        'cifar10'
    """
    whole = whole_source(source)
    pack = data_root(root) / f"{whole}.npz"
    if not (whole in data_names() or Path(whole).expanduser().exists() or pack.is_file()):
        check_choice(what, whole, {*data_names(), *near_sources(whole, root)})
    return source


def find_loader(name: str) -> Loader | None:
    """What loads a set that was registered, or the digits; None for what is read from files."""
    packed = name in KNOWN and KNOWN[name].pack is not None
    return LOADERS[name] if name in LOADERS and not packed else None


def find_files(name: str, root: Path) -> Path:
    """The pack of a known set, or whichever pack, folder or CSV is meant by a name or path."""
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
    raise MissingDataError(
        f"no data {name!r}: it is neither a path nor a pack in {root} nor a registered set; "
        + suggestion(name, data_names(), near_sources(name, root))
    )


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 2**20:,.0f} MiB"
