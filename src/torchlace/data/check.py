"""Whether a set is what it should be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchlace._text import counted, listed
from torchlace.data.digest import image_hashes
from torchlace.data.errors import DataError, MissingDataError
from torchlace.data.images import ImageData, Images
from torchlace.data.known import KNOWN, KnownData, identify
from torchlace.data.load import load_data


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

    Raises:
        MissingDataError: if there is nothing of that name.

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
    return report_on(data)


def report_on(data: ImageData) -> CheckReport:
    """What there is to say on a loaded set."""
    train, test = _counts(data.train, data.num_classes), _counts(data.test, data.num_classes)
    hashes, test_hashes = image_hashes(data.train), image_hashes(data.test)
    trained = set(hashes)
    identity = identify(data.digest)
    report = CheckReport(
        data.name,
        len(data.train),
        len(data.test),
        data.train.shape,
        data.class_names,
        train,
        test,
        sum(each in trained for each in test_hashes),
        data.digest,
        None if identity is None else identity[1],
    )
    _look_at_classes(report)
    _compare(report, KNOWN.get(data.name), None if identity is None else identity[0])
    if report.duplicates:
        # Some official sets hold a few; that is worth knowing, but nothing to repair.
        place = report.problems if identity is None else report.notes
        place.append(f"{report.duplicates} of {report.test} test images are training images too")
    repeated = len(hashes) - len(trained)
    if repeated:
        report.notes.append(f"{repeated} training images are copies of others")
    if data.skipped:
        files = counted(len(data.skipped), "image file")
        report.notes.append(f"{files} can't be read, the first: {data.skipped[0]}")
    return report


def _counts(images: Images, classes: int) -> tuple[int, ...]:
    return tuple(torch.bincount(images.labels, minlength=classes).tolist())


def _look_at_classes(report: CheckReport) -> None:
    for part, counts in (("training", report.train_counts), ("test", report.test_counts)):
        empty = [name for name, count in zip(report.class_names, counts, strict=True) if not count]
        if empty:
            place = report.problems if part == "training" else report.notes
            place.append(f"no {part} images of {listed(empty)}")
    most, least = max(report.train_counts), min(report.train_counts)
    if least and most >= 10 * least:
        report.notes.append(f"unbalanced: {least} to {most} training images a class")


def _compare(report: CheckReport, known: KnownData | None, identity: str | None) -> None:
    if identity is not None and identity != report.name:
        report.notes.append(f"this is {identity}")
    if known is None or identity == report.name:
        return
    expected = {
        "training images": (report.train, known.train),
        "test images": (report.test, known.test),
        "classes": (len(report.class_names), len(known.class_names)),
        "channels, height, width": (report.shape, known.shape),
    }
    wrong = [
        f"{what}: {seen}, the official set has {right}"
        for what, (seen, right) in expected.items()
        if seen != right
    ]
    report.problems.extend(wrong)
    if wrong:
        return
    if known.official:
        report.problems.append(
            "counts are right, but images or labels differ from the official ones: its digest is "
            f"{report.digest}, theirs {next(iter(known.digests))}; fetch or import it again"
        )
    else:
        report.notes.append(
            "counts are those of the official set; its digest is not known here, so the images "
            "themselves could not be compared"
        )
