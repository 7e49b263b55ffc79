"""A whole search: a cube and target spectra from files, scores and a map of them to files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import torchlace
from torchlace._files import write_whole
from torchlace._reporter import Reporter
from torchlace._sklearn import Array, fit_anew
from torchlace._text import listed, setting
from torchlace._values import check_choice
from torchlace.detection.base import Detector
from torchlace.detection.cubes import Cube, map_npy, open_cube
from torchlace.detection.detectors import ACEDetector, RXDetector, SMFDetector
from torchlace.detection.journal import Journal
from torchlace.detection.pixels import BandError, Pixels
from torchlace.detection.scoring import score_blocks
from torchlace.detection.targets import read_targets

_DETECTORS: dict[str, Any] = {"ace": ACEDetector, "smf": SMFDetector}


class Detected(NamedTuple):
    """What a search found: scores (H, W, K) or (N, K) for K targets, and thresholds for them.

    Thresholds are (K,), or (W, K) where columns have their own. ``empty`` pixels without data were
    left out; their scores are NaN. Scores stay on disk and are read as they are used.
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
    reporter: Reporter | None = None,
    **options: Any,
) -> Detected:
    """Look for spectra, or anomalies, in a cube of a file, and write the scores.

    The cube is read in blocks, once for the background and once for the scores, so it may be larger
    than memory. An interrupted search goes on where it was when it is called again. Where something
    is wrong with the input nothing is left behind; where scores can't be written, what is done
    stays in a folder beside them.

    Args:
        cube: as :func:`~torchlace.detection.open_cube` takes it.
        target: spectra as :func:`~torchlace.detection.targets.read_targets` takes them.
        out: where the scores go, .npy.
        png: where a map of the scores goes, .png.
        drop_bands: bands to leave out of cube and target, counted from 0: ``"104-113,148-166"``.
        detector: ``"ace"``, ``"smf"`` or ``"rx"``, which takes no target.
        convention: ``"classical"`` or ``"paper"``, as the detector takes it.
        reporter: is told of progress.
        **options: others of the detector.

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
    source = open_cube(cube)
    if png is not None and len(source.shape) != 3:
        raise ValueError(
            f"{setting('png')} draws images; {cube} holds {source.shape[0]} pixels without places"
        )
    kept = _kept(drop_bands, source.shape[-1])
    spectra, made = _make(
        detector, target, kept, source.shape[-1], {"convention": convention, **options}
    )
    settings = {name: value for name, value in made.get_params().items() if name != "target"}
    facts = {
        "version": torchlace.__version__,
        "cube": source.identity(),
        "target": spectra if spectra is None else spectra.tolist(),
        "settings": [detector, drop_bands, repr(settings)],
    }
    with (
        _advice_for_bands(kept, drop_bands),
        Journal(out, facts, reporter or Reporter()) as journal,
    ):
        limits, empty = _search(source.keep(kept) if drop_bands else source, made, journal)
        if source.identity() != facts["cube"]:
            raise ValueError(f"{cube} changed while it was read: start the same command again")
        journal.finish()
    scores = map_npy(out)
    planes = scores.reshape(*source.shape[:-1], -1)
    limits = np.broadcast_to(limits, (*limits.shape[:-1], planes.shape[-1]))
    if png is not None:
        figure = _draw(planes, limits, detector)
        write_whole(png, lambda file: figure.savefig(file, format="png"))
    return Detected(planes, limits, empty)


def _search(cube: Cube, detector: Detector, journal: Journal) -> tuple[Array, int]:
    """Write the scores; the thresholds, and the number of pixels without data."""
    pixels = Pixels(cube)

    def learn(fitted: Detector) -> None:
        fitted._fit(cube, journal.background)

    fit_anew(detector, learn)
    known = detector._background_size(pixels)
    if detector._counts():
        detector._check_countable(known)
    shape = (*pixels.shape, *detector._shape_of_scores())
    dtype = np.dtype(np.float32 if pixels.dtype == torch.float32 else np.float64)
    journal.write(score_blocks(detector, pixels, journal.scored), shape, dtype)
    if detector._counts():
        scores = map_npy(journal.scores)
        parts = (np.array(scores[rows]) for rows in pixels.ranges(torch.device("cpu")))
        detector._count(parts, known)
    limits = np.asarray(detector.fitted_threshold_)
    by_columns = detector.columns is not None and not detector._counts()
    limits = limits.reshape(*limits.shape[:by_columns], -1)
    return limits, pixels.height * pixels.width - known


def _draw(planes: Array, limits: Array, name: str) -> Any:
    """A figure of the scores, (H, W, K), one map for each target, with what was found marked.

    Limits are those of the targets, (K,), or of columns and targets, (W, K).
    """
    from matplotlib.figure import Figure

    height, width, count = planes.shape
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(5 * columns, 4.5 * rows * min(max(height / width, 0.4), 2)))
    figure.set_layout_engine("constrained")
    for number in range(count):
        plane, limit = planes[..., number], limits[..., number]
        axes = figure.add_subplot(rows, columns, number + 1)
        low, high = np.nanquantile(plane, [0.001, 0.999])
        drawn = axes.imshow(plane, cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
        found = np.argwhere(plane > limit)
        figure.colorbar(drawn, ax=axes, extend="both")
        # More marks than that would hide the map.
        if len(found) <= plane.size // 50:
            style: dict[str, Any] = {"facecolors": "none", "edgecolors": "red", "linewidths": 0.8}
            axes.scatter(found[:, 1], found[:, 0], 40, **style)
        label = f"{name} {number + 1}" if count > 1 else name
        above = f"{limit:.3g}" if limit.ndim == 0 else "their columns' limits"
        axes.set_title(f"{label}: {len(found)} pixels above {above}")
    return figure


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
) -> tuple[Array | None, Detector]:
    """The spectra to look for, if any, and the detector of this name."""
    check_choice("detector", name, (*_DETECTORS, "rx"))
    if name == "rx":
        if target is not None:
            raise ValueError(f"rx looks for anomalies and takes no {setting('target')}")
        if options.pop("convention") != "classical":
            raise ValueError(f"rx has no target, so there is no {setting('convention')} to choose")
        return None, RXDetector(**options)
    if target is None:
        raise ValueError(
            f"{name} looks for a spectrum: give {setting('target', 'FILE')}, or "
            f"{setting('detector', 'rx')}"
        )
    spectra = read_targets(target, bands)[..., kept]
    return spectra, _DETECTORS[name](spectra, **options)


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
