"""Packs from the internet, through torchvision, which knows the addresses and checksums."""

from __future__ import annotations

import shutil
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from torchlace._checks import check_choice
from torchlace.data.errors import DataError, require
from torchlace.data.importing import import_data
from torchlace.data.known import KNOWN
from torchlace.data.packs import data_root

File = tuple[str, str, str]


def fetch_data(name: str, root: Path | str | None = None) -> Path:
    """Download a known set and write its pack; nothing is downloaded that is there already.

    Args:
        name: ``fashion_mnist``, ``cifar10``, ``svhn`` or ``cifar100``.
        root: where packs live, see :func:`load_data`.

    Returns:
        The path of the pack.

    Raises:
        DataError: if it can't be downloaded or a checksum is wrong.

    Example:
        >>> fetch_data("digits")
        Traceback (most recent call last):
        torchlace.data.errors.DataError: digits come with scikit-learn: there is nothing to fetch
    """
    known = KNOWN[check_choice("data", name, KNOWN)]
    if known.pack is None:
        raise DataError(f"{name} come with scikit-learn: there is nothing to fetch")
    target = data_root(root) / f"{known.pack}.npz"
    if target.is_file():
        return target
    # Kept until the pack is written, so that what arrived before a failure isn't fetched twice.
    downloads = target.with_name(f".{known.pack}.download")
    datasets = require("torchvision.datasets", "torchvision", "downloading data")
    for url, filename, checksum in _files(known.pack):
        try:
            datasets.utils.download_url(url, downloads, filename, checksum)
        except (OSError, RuntimeError, HTTPException) as error:
            with suppress(OSError):  # leave nothing behind where nothing arrived
                downloads.rmdir()
            raise DataError(
                f"can't download {url} ({error}); if there is no way to the internet from here, "
                f"bring a copy of the official files and run `torchlace data import FOLDER --name "
                f"{known.pack}`, or copy {target.name} from elsewhere to {target.parent}"
            ) from error
    archive = next(downloads.glob("*.tar.gz"), downloads)
    pack = import_data(archive, known.pack, target.parent)
    shutil.rmtree(downloads)
    return pack


def _files(pack: str) -> list[File]:
    """Address, name and MD5 of the official files, as torchvision has them."""
    datasets = require("torchvision.datasets", "torchvision", "downloading data")
    if pack == "fashion_mnist":
        sets = datasets.FashionMNIST
        return [(sets.mirrors[0] + file, file, checksum) for file, checksum in sets.resources]
    if pack == "svhn":
        return [tuple(datasets.SVHN.split_list[part]) for part in ("train", "test")]
    sets = datasets.CIFAR10 if pack == "cifar10" else datasets.CIFAR100
    return [(sets.url, sets.filename, sets.tgz_md5)]
