"""A whole search: a cube and target spectra from files, scores and a map of them to files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchlace._files import write_whole
from torchlace._sklearn import Array
from torchlace._text import counted, listed, setting
from torchlace._values import check_choice
from torchlace.detection.base import Detector
from torchlace.detection.detectors import ACEDetector, RXDetector, SMFDetector
from torchlace.detection.files import draw_scores, read_cube, read_targets
from torchlace.detection.pixels import BandError, mask_empty

_DETECTORS: dict[str, Any] = {"ace": ACEDetector, "smf": SMFDetector}


class Detected(NamedTuple):
    """What a search found: scores (H, W, K) or (N, K) for K targets, a threshold for each of them.

    ``empty`` pixels without data were left out; their scores are NaN.
    """

    scores: Array
    thresholds: Array
    empty: int


def detect_in_file(
    cube: Path,
    target: Path | None = None,
    out: Path = Path("scores.npy"),
    *,
    png: Path | None = None,
    drop_bands: str = "",
    detector: str = "ace",
    convention: str = "classical",
    window: tuple[int, int] | None = None,
    **options: Any,
) -> Detected:
    """Look for spectra, or anomalies, in a cube of a file, and write the scores.

    Args:
        cube: as :func:`~torchlace.detection.files.read_cube` takes it.
        target: spectra as :func:`~torchlace.detection.files.read_targets` takes them.
        out: where the scores go, .npy.
        png: where a map of the scores goes, .png.
        drop_bands: bands to leave out of cube and target, counted from 0: ``"104-113,148-166"``.
        detector: ``"ace"``, ``"smf"`` or ``"rx"``, which takes no target.
        convention: ``"classical"`` or ``"paper"``, as the detector takes it.
        window: widths of a window of local background, as the detector takes it.
        **options: others of the detector.

    Raises:
        ValueError: where something is wrong, before anything is written; the message says what.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cube, out = Path(folder, "cube.npy"), Path(folder, "scores.npy")
        ...     np.save(cube, np.random.default_rng(0).normal(size=(9, 9, 4)))
        ...     detect_in_file(cube, out=out, detector="rx").scores.shape, np.load(out).shape
        ((9, 9, 1), (9, 9))
    """
    _check_output("out", out, ".npy", cube, target)
    if png is not None:
        _check_output("png", png, ".png")
    pixels = read_cube(cube)
    if png is not None and pixels.ndim != 3:
        raise ValueError(
            f"{setting('png')} draws images; {cube} holds {len(pixels)} pixels without places"
        )
    kept = _kept(drop_bands, pixels.shape[-1])
    options |= {"convention": convention, "window": window}
    found = _make(detector, target, kept, pixels.shape[-1], options)
    with _advice_for_bands(kept, drop_bands):
        pixels = mask_empty(pixels[..., kept] if drop_bands else pixels)
        empty = int(np.ma.getmaskarray(pixels[..., 0]).sum())
        if window is not None and empty:
            raise ValueError(
                f"{counted(empty, 'pixel')} without data, which a window would slide over: cut "
                f"the image to where data is, or leave {setting('window')} out"
            )
        scores = np.ma.filled(found.fit(pixels).score_samples(pixels), np.nan)
        limits = np.atleast_1d(found.fitted_threshold_)
    write_whole(out, lambda file: np.save(file, scores))
    planes = scores.reshape(*pixels.shape[:-1], -1)
    if png is not None:
        figure = draw_scores(planes, limits, detector)
        write_whole(png, lambda file: figure.savefig(file, format="png"))
    return Detected(planes, np.broadcast_to(limits, planes.shape[-1:]), empty)


def _check_output(name: str, path: Path, suffix: str, *inputs: Path | None) -> None:
    """Raise before the work what would fail after it, or destroy what was given."""
    said = setting(name, str(path))
    if path.is_dir():
        raise ValueError(f"{said} is a folder: name a {suffix} file in it")
    if path.suffix.lower() != suffix:
        raise ValueError(f"{said}: it is written as {suffix}, so let its name end so")
    if not path.parent.is_dir():
        raise ValueError(
            f"{said} could not be written: there is no folder {path.parent}, make it first"
        )
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{said} could not be written: {path.parent} is read-only")
    if any(given is not None and given.resolve() == path.resolve() for given in inputs):
        raise ValueError(f"{said} would overwrite what is read: give another name")


def _kept(drop: str, count: int) -> Array:
    """The numbers of the bands that ``drop``, such as 104-113,148-166, leaves."""
    said = setting("drop_bands")
    kept = np.ones(count, dtype=bool)
    for part in filter(None, drop.replace(" ", "").split(",")):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if first > last:
            raise ValueError(
                f"{said}: {part!r} is neither a band nor a range of bands; write them like "
                "104-113,148-166"
            )
        if last >= count:
            raise ValueError(
                f"{said}: there is no band {last}, the cube's {count} are 0 to {count - 1}"
            )
        kept[first : last + 1] = False
    if not kept.any():
        raise ValueError(f"{said} leaves no band to look at")
    return np.flatnonzero(kept)


def _make(
    name: str, target: Path | None, kept: Array, bands: int, options: dict[str, Any]
) -> Detector:
    check_choice("detector", name, (*_DETECTORS, "rx"))
    if name == "rx":
        if target is not None:
            raise ValueError(f"rx looks for anomalies and takes no {setting('target')}")
        if options.pop("convention") != "classical":
            raise ValueError(f"rx has no target, so there is no {setting('convention')} to choose")
        return RXDetector(**options)
    if target is None:
        raise ValueError(
            f"{name} looks for a spectrum: give {setting('target', 'FILE')}, or "
            f"{setting('detector', 'rx')}"
        )
    made: Detector = _DETECTORS[name](read_targets(target, bands)[..., kept], **options)
    return made


@contextmanager
def _advice_for_bands(kept: Array, dropped: str) -> Iterator[None]:
    """Let errors of a detector about the bands it got say which bands of the cube to drop."""
    try:
        yield
    except BandError as error:
        bands = kept[error.bands]
        more = "those that most pixels lack"
        if len(bands):
            more = ",".join(filter(None, [dropped, _ranges(bands)]))
        problem = error.problem.format(bands=listed(bands.tolist()))
        raise ValueError(f"{problem}: {setting('drop_bands', more)}") from error


def _ranges(bands: Array) -> str:
    """Ascending numbers as what :func:`_kept` reads."""
    runs = np.split(bands, np.flatnonzero(np.diff(bands) > 1) + 1)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
