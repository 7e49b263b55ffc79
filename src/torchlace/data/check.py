"""Checks whether a set is what it should be, and draws a picture of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchlace._files import write_whole
from torchlace._text import counted, listed, shown
from torchlace.data.decode import DataError, MissingDataError, as_picture, require
from torchlace.data.images import ImageData
from torchlace.data.load import image_hashes, load_data
from torchlace.data.sources import KNOWN, identify

_CELL, _GAP, _MARGIN, _TEXT = 64, 4, 12, 14
_MOST_CLASSES, _LETTERS, _COLUMNS = 100, 32, 12


@dataclass(frozen=True)
class CheckReport:
    """What :func:`check_data` found.

    Attributes:
        name: of the set.
        train: number of training images.
        test: number of test images.
        shape: channels, height, width.
        class_names: a name for each label.
        train_counts: training images of each class.
        test_counts: test images of each class.
        duplicates: test images that are training images too.
        digest: of images and labels, in any order.
        identity: what a known set with this digest is; None if it is not known.
        notes: what is worth knowing.
        problems: what is wrong; empty if all is well.
    """

    name: str
    train: int = 0
    test: int = 0
    shape: tuple[int, int, int] = (0, 0, 0)
    class_names: tuple[str, ...] = ()
    train_counts: tuple[int, ...] = ()
    test_counts: tuple[int, ...] = ()
    duplicates: int = 0
    digest: str = ""
    identity: str | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {**asdict(self), "ok": self.ok}


def check_data(
    source: str | Path, root: Path | str | None = None, *, skip_bad: bool = False
) -> CheckReport:
    """Look at counts, shapes, labels, balance, duplicates and the digest of a set.

    Args:
        source: name or path, see :func:`load_data`.
        root: where packs live, likewise.
        skip_bad: count image files that can't be read as a note, not as a problem.

    Example:
        >>> report = check_data("digits")
        >>> report.ok, report.identity
        (True, "scikit-learn's digits with the fixed test split")
    """
    try:
        data = load_data(source, root, skip_bad=skip_bad)
    except MissingDataError:
        raise
    except DataError as error:
        return CheckReport(str(source), problems=[str(error)])
    hashes, test_hashes = image_hashes(data.train), image_hashes(data.test)
    trained = set(hashes)
    known, identity = identify(data.digest) or (None, None)
    report = CheckReport(
        **data.summary(),
        duplicates=sum(each in trained for each in test_hashes),
        identity=identity,
    )
    train, test = report.train_counts, report.test_counts
    for part, counts in (("training", train), ("test", test)):
        empty = [name for name, count in zip(data.class_names, counts, strict=True) if not count]
        if empty:
            place = report.problems if part == "training" else report.notes
            place.append(f"no {part} images of {listed(empty)}")
    if min(train) and max(train) >= 10 * min(train):
        report.notes.append(f"unbalanced: {min(train)} to {max(train)} training images a class")
    _compare(report, known)
    if report.duplicates:
        # Some official sets hold a few; that is worth knowing, but nothing to repair.
        place = report.problems if identity is None else report.notes
        place.append(f"{report.duplicates} of {report.test} test images are training images too")
    repeated = len(hashes) - len(trained)
    if repeated:
        report.notes.append(f"{repeated} training images are copies of others")
    if data.resized:
        report.notes.append(data.resized)
    if data.skipped:
        files = counted(len(data.skipped), "image file")
        report.notes.append(f"{files} can't be read, the first: {data.skipped[0]}")
    return report


def contact_sheet(data: ImageData, path: Path | str) -> Path:
    """Write a PNG with twelve training images of each class (of the first 100), spread evenly.

    Example:
        >>> import tempfile
        >>> from torchlace.data import load_data
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     contact_sheet(load_data("digits"), f"{folder}/digits.png").stat().st_size > 0
        True
    """
    require("PIL", "Pillow", "drawing a contact sheet")
    plots = require("matplotlib", "matplotlib", "drawing a contact sheet").get_data_path()
    from PIL import Image, ImageDraw, ImageFont, ImageOps

    # Pillow's own font lacks all but the plainest letters; matplotlib brings one that has most.
    font = ImageFont.truetype(f"{plots}/fonts/ttf/DejaVuSans.ttf", _TEXT)
    side = max(data.size)
    # Small images are enlarged by a whole number, so that their pixels stay square.
    cell = _CELL // side * side or _CELL
    method = Image.Resampling.NEAREST if cell > side else Image.Resampling.BILINEAR
    step = cell + _GAP
    names = [shown(name) for name in data.class_names[:_MOST_CLASSES]]
    labels = [name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…" for name in names]
    title = _title(data)
    left = 2 * _MARGIN + round(max(font.getlength(label) for label in labels))
    top = 2 * _MARGIN + _TEXT
    across = max(left + _COLUMNS * step, round(font.getlength(title)) + _MARGIN) + _MARGIN
    sheet = Image.new("RGB", (across, top + len(labels) * step + _MARGIN), "white")
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN + _TEXT // 2), title, "black", font, anchor="lm")
    for row, label in enumerate(labels):
        y = top + row * step
        draw.text((_MARGIN, y + cell // 2), label, "black", font, anchor="lm")
        members = (data.train.labels == row).nonzero().flatten()
        if len(members) > _COLUMNS:
            members = members[torch.arange(_COLUMNS) * len(members) // _COLUMNS]
        for column, image in enumerate(data.train.batch(members)):
            picture = ImageOps.pad(as_picture(image).convert("RGB"), (cell, cell), method, "white")
            sheet.paste(picture, (left + column * step, y))
    path = Path(path)
    write_whole(path, lambda file: sheet.save(file, format="PNG"), DataError, folders=True)
    return path


def _compare(report: CheckReport, identity: str | None) -> None:
    """Say how a set differs from the one that its name, or its digest, stands for."""
    if identity is not None and identity != report.name:
        report.notes.append(f"this is {identity}")
    known = KNOWN.get(report.name)
    if known is None or identity == report.name:
        return
    compared = (
        ("training images", report.train, known.train),
        ("test images", report.test, known.test),
        ("classes", len(report.class_names), len(known.class_names)),
        ("channels, height, width", report.shape, known.shape),
    )
    wrong = [
        f"{what}: {seen}, the official set has {right}"
        for what, seen, right in compared
        if seen != right
    ]
    report.problems.extend(wrong)
    if not wrong and known.official:
        report.problems.append(
            "counts are right, but images or labels differ from the official ones: its digest is "
            f"{report.digest}, theirs {next(iter(known.digests))}; fetch or import it again"
        )
    elif not wrong:
        report.notes.append(
            "counts are those of the official set; its digest is not known here, so the images "
            "themselves could not be compared"
        )


def _title(data: ImageData) -> str:
    height, width = data.size
    text = (
        f"{shown(data.name)}: {len(data.train):,} training and {len(data.test):,} test images, "
        f"{width} × {height} × {data.channels}, {data.num_classes} classes"
    )
    if data.num_classes > _MOST_CLASSES:
        text += f", the first {_MOST_CLASSES} shown"
    return text
