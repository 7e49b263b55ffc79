"""Labelled image files: listed from a folder of class folders, or from a CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlace._text import is_text, listed, shown
from torchlace.data.decode import DataError

# A camera's HEIC too, which only some installations read: a set must not shrink without a word.
SUFFIXES = {
    *(".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".jp2", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".heic", ".heif"),
}
_PARTS = {
    "train": ("train", "training"),
    "test": ("test", "testing", "holdout", "heldout"),
    "val": ("val", "valid", "validation", "dev", "development", "eval", "evaluation"),
}
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}

# A file, the name of its class, and the part of a split that it belongs to, if any.
Row = tuple[Path, str, str]


class Listing(NamedTuple):
    """Labelled image files; ``testing`` says which are test images, where the source says it."""

    paths: list[Path]
    labels: Tensor
    testing: Tensor | None
    class_names: tuple[str, ...]


def list_folder(folder: Path) -> Listing:
    """Image files of class folders, possibly below ``train`` and ``test`` or ``val``.

    Without ``test``, ``val`` is the test set; with it, ``val`` joins the training images, of which
    the validation images are drawn. Other usual names of these parts are understood too. Hidden
    files and those without an image's suffix don't count.
    """
    parts = _part_folders(folder) or [(folder, "")]
    rows = [(path, name, part) for sub, part in parts for path, name in _class_files(sub)]
    return _listing(rows, folder)


def list_csv(path: Path) -> Listing:
    """Image files of a CSV with the columns path, label and, optionally, split.

    Paths are relative to the CSV. ``split`` says train, test or val, see :func:`list_folder`.
    Labels are names; where all are numbers, they are sorted as such. Columns are separated as in
    the first line: by commas, semicolons or tabs.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            separator, columns = _csv_columns(file.readline(), path)
            reader = csv.DictReader(file, columns, delimiter=separator, skipinitialspace=True)
            rows = [_csv_row(row, path, 1 + reader.line_num, separator) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV in UTF-8 ({error})") from error
    return _listing(rows, path)


def image_files(folder: Path) -> list[Path]:
    """Image files in a folder and its subfolders, sorted; hidden ones don't count."""
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and _visible(path.relative_to(folder).parts)
    ]
    return sorted((path for path in found if path.is_file()), key=Path.as_posix)


def _part_folders(folder: Path) -> list[tuple[Path, str]] | None:
    """Subfolders that are parts of a split, and which; None where they are classes."""
    named = [(sub, _part(sub.name)) for sub in _subfolders(folder)]
    classes = {sub.name: {each.name for each in _subfolders(sub)} for sub, _ in named}
    train = next((sub.name for sub, part in named if part == "train" and classes[sub.name]), None)
    if train is None:
        return None
    others = [sub.name for sub, part in named if not part]
    if not others:
        return named
    # A class may be called train; beside a test with class folders of its own it hardly is one.
    for sub, part in named:
        if part in ("test", "val") and classes[sub.name]:
            raise DataError(
                f"{folder}: holds {train} and {sub.name} folders beside {listed(others)}; move "
                "what is no part of the set elsewhere, or give a CSV of paths and labels"
            )
    for other in others:
        same = sorted(classes[train] & classes[other])
        if same:
            raise DataError(
                f"{folder}: {train} and {other} hold folders of the same names ({listed(same)}), "
                f"so they hardly are classes; call {other} test if it is there to test on, else "
                "move it elsewhere, or give a CSV of paths and labels"
            )
    return None


def _part(name: str) -> str:
    """Which part of a split is called so; an empty text for none."""
    plain = name.lower().translate(str.maketrans("", "", "-_ "))
    return next((part for part, names in _PARTS.items() if plain in names), "")


def _class_files(folder: Path) -> list[tuple[Path, str]]:
    classes = _subfolders(folder)
    if not classes:
        raise DataError(
            f"{folder}: no class folders; images go into one folder for each class, like "
            f"{folder.name}/cat/1.jpg, or give a CSV of paths and labels"
        )
    odd = [sub.name for sub in classes if not is_text(sub.name)]
    if odd:
        raise DataError(
            f"{folder}: the name of the class folder {shown(odd[0])} is not UTF-8, so it could be "
            "trained on and then neither reported nor exported: rename it"
        )
    files = {sub.name: image_files(sub) for sub in classes}
    empty = [name for name, paths in files.items() if not paths]
    if empty:
        raise DataError(
            f"{folder}: no images in the class folders {listed(empty)}; remove them, or is it "
            f"another kind of file? Known: {' '.join(sorted(SUFFIXES))}"
        )
    return [(path, name) for name, paths in files.items() for path in paths]


def _csv_columns(line: str, path: Path) -> tuple[str, list[str]]:
    """What separates columns, and their names."""
    read = {
        mark: next(csv.reader([line], delimiter=mark, skipinitialspace=True)) for mark in ",;\t"
    }
    named = {mark: [name.strip().lower() for name in names] for mark, names in read.items()}
    good = [mark for mark, names in named.items() if {"path", "label"} <= set(names)]
    if not good:
        raise DataError(
            f"{path}: the first line must name the columns path,label[,split], it says "
            f"{line.strip().lower() or 'nothing'}"
        )
    if len(good) > 1:
        marks = " or ".join(_MARKS[mark] for mark in good)
        raise DataError(
            f"{path}, line 1: {line.strip()!r} names the columns path and label whether {marks} "
            "separate them; use one of these only"
        )
    return good[0], named[good[0]]


def _csv_row(row: dict[Any, Any], path: Path, line: int, separator: str) -> Row:
    if any(more.strip() for more in row.get(None, ())):
        raise DataError(
            f"{path}, line {line}: more columns than the first line names; put quotes around a "
            f"path or label that holds {_MARKS[separator]}"
        )
    file, label, split = ((row.get(key) or "").strip() for key in ("path", "label", "split"))
    part = _part(split)
    if not file or not label:
        raise DataError(
            f"{path}, line {line}: the path or the label is missing (columns are separated by "
            f"{_MARKS[separator]})"
        )
    if split and not part:
        raise DataError(f"{path}, line {line}: split must be train, test or val, got {split!r}")
    return path.parent / file, label, part


def _listing(rows: Sequence[Row], source: Path) -> Listing:
    if not rows:
        raise DataError(f"{source}: no images")
    paths, labels, parts = zip(*rows, strict=True)
    names = sorted(set(labels))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)
    if len(names) < 2:
        raise DataError(f"{source}: only one class, {names[0]!r}; there is nothing to tell apart")
    held_out = next((part for part in ("test", "val") if part in parts), None)
    trained = {name for _, name, part in rows if part != held_out}
    unknown = [name for name in names if name not in trained]
    if unknown:
        raise DataError(
            f"{source}: no training images of the classes {listed(unknown)}, only test images"
        )
    index = {name: label for label, name in enumerate(names)}
    numbers = torch.tensor([index[name] for name in labels])
    testing = None if held_out is None else torch.tensor([part == held_out for part in parts])
    return Listing(list(paths), numbers, testing, tuple(names))


def _subfolders(folder: Path) -> list[Path]:
    subs = [sub for sub in folder.iterdir() if sub.is_dir() and _visible((sub.name,))]
    return sorted(subs, key=lambda sub: sub.name)


def _visible(parts: Iterable[str]) -> bool:
    return not any(part.startswith(".") or part == "__MACOSX" for part in parts)
