"""``torchlace detect``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace._text import counted, listed
from torchlace.cli.common import plain_errors, say

if TYPE_CHECKING:
    from torchlace.detection.base import Detector


def detect(
    cube: Annotated[
        Path, typer.Argument(help="Image (H, W, bands) or pixels (N, bands): .npy, or ENVI's .hdr.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(help="Spectra to look for, one for each line of a .csv or row of a .npy."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the scores go, .npy.")] = Path("scores.npy"),
    png: Annotated[Path | None, typer.Option(help="Where a map of the scores goes, .png.")] = None,
    drop_bands: Annotated[
        str,
        typer.Option(
            metavar="BANDS",
            help="Bands to leave out of cube and target, counted from 0: 104-113,148-166.",
        ),
    ] = "",
    detector: Annotated[str, typer.Option(help="ace, smf or rx (anomalies, no target)")] = "ace",
    convention: Annotated[
        str,
        typer.Option(help="classical: target centred, ACE squared; paper: neither"),
    ] = "classical",
    covariance: Annotated[str, typer.Option(help="sample, ledoit-wolf, oas or robust")] = "sample",
    window: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="GUARD OUTER", help="Widths of a window of local background."),
    ] = None,
    false_alarm: Annotated[float, typer.Option(help="Share of background pixels found.")] = 1e-3,
    threshold: Annotated[
        str, typer.Option(help="cfar (by theory), empirical (counted) or auto")
    ] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
) -> None:
    """Find a spectrum, or anomalies, in a hyperspectral image."""
    with plain_errors():
        import numpy as np

        from torchlace._files import write_whole
        from torchlace.detection.files import draw_scores, read_cube
        from torchlace.detection.pixels import mask_empty

        _check_output("--out", out, ".npy", cube, target)
        if png is not None:
            _check_output("--png", png, ".png")
        pixels = read_cube(cube)
        if png is not None and pixels.ndim != 3:
            raise ValueError(
                f"--png draws images; {cube} holds {len(pixels)} pixels without places"
            )
        kept = _kept(drop_bands, pixels.shape[-1])
        options = {
            "covariance": covariance,
            "window": window,
            "false_alarm": false_alarm,
            "threshold": threshold,
            "device": device,
        }
        found = _make(detector, target, kept, pixels.shape[-1], convention, options)
        with _words_of_the_command_line(kept, drop_bands):
            pixels = mask_empty(pixels[..., kept] if drop_bands else pixels)
            empty = int(np.ma.getmaskarray(pixels[..., 0]).sum())
            if window is not None and empty:
                raise ValueError(
                    f"{counted(empty, 'pixel')} without data, which a window would slide over: cut "
                    "the image to where data is, or leave --window out"
                )
            scores = np.ma.filled(found.fit(pixels).score_samples(pixels), np.nan)
            limits = np.atleast_1d(found.fitted_threshold_)
        write_whole(out, lambda file: np.save(file, scores))
        planes = scores.reshape(*pixels.shape[:-1], -1)
        if png is not None:
            figure = draw_scores(planes, limits, detector)
            write_whole(png, lambda file: figure.savefig(file, format="png"))
    for number, limit in enumerate(np.broadcast_to(limits, planes.shape[-1:])):
        plane = planes[..., number]
        place = tuple(map(int, np.unravel_index(np.nanargmax(plane), plane.shape)))
        name = f"target {number + 1}: " if planes.shape[-1] > 1 else ""
        say(
            f"{name}{int((plane > limit).sum())} of {(~np.isnan(plane)).sum()} pixels above "
            f"{limit:.6g}, false-alarm rate {false_alarm:g}; largest {np.nanmax(plane):.6g} at "
            f"{place}"
        )
    if empty:
        say(f"left out {counted(empty, 'pixel')} without data, NaN in {out}")
    say(f"scores in {out}" + (f", map in {png}" if png is not None else ""))


def _check_output(option: str, path: Path, suffix: str, *inputs: Path | None) -> None:
    """Raise before the work what would fail after it, or destroy what was given."""
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder: name a {suffix} file in it")
    if path.suffix.lower() != suffix:
        raise ValueError(f"{option} {path}: it is written as {suffix}, so let its name end so")
    if not path.parent.is_dir():
        raise ValueError(
            f"{option} {path} could not be written: there is no folder {path.parent}, make it first"
        )
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{option} {path} could not be written: {path.parent} is read-only")
    if any(given is not None and given.resolve() == path.resolve() for given in inputs):
        raise ValueError(f"{option} {path} would overwrite what is read: give another name")


def _kept(drop: str, count: int) -> Any:
    """The numbers of the bands that ``drop``, such as 104-113,148-166, leaves."""
    import numpy as np

    kept = np.ones(count, dtype=bool)
    for part in filter(None, drop.replace(" ", "").split(",")):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if first > last:
            raise ValueError(
                f"--drop-bands: {part!r} is neither a band nor a range of bands; write them like "
                "104-113,148-166"
            )
        if last >= count:
            raise ValueError(
                f"--drop-bands: there is no band {last}, the cube's {count} are 0 to {count - 1}"
            )
        kept[first : last + 1] = False
    if not kept.any():
        raise ValueError("--drop-bands leaves no band to look at")
    return np.flatnonzero(kept)


@contextmanager
def _words_of_the_command_line(kept: Any, dropped: str) -> Iterator[None]:
    """Errors of a detector, about its arguments and the bands it got, said of options and cube."""
    from torchlace.detection.pixels import BandError

    try:
        yield
    except BandError as error:
        bands = kept[error.bands]
        more = "those that most pixels lack"
        if len(bands):
            more = ",".join(filter(None, [dropped, _ranges(bands)]))
        problem = error.problem.format(bands=listed(bands.tolist()))
        raise ValueError(f"{problem}: --drop-bands {more}") from error


def _ranges(bands: Any) -> str:
    """Ascending numbers as what :func:`_kept` reads."""
    import numpy as np

    runs = np.split(bands, np.flatnonzero(np.diff(bands) > 1) + 1)
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _make(
    name: str,
    target: Path | None,
    kept: Any,
    bands: int,
    convention: str,
    options: dict[str, Any],
) -> Detector:
    from torchlace import detection
    from torchlace._checks import check_choice
    from torchlace.detection.files import read_targets

    check_choice("detector", name, ("ace", "smf", "rx"))
    if name == "rx":
        if target is not None:
            raise ValueError("rx looks for anomalies and takes no --target")
        if convention != "classical":
            raise ValueError("rx has no target, so there is no --convention to choose")
        return detection.RXDetector(**options)
    if target is None:
        raise ValueError(f"{name} looks for a spectrum: give --target FILE, or --detector rx")
    kinds: dict[str, Any] = {"ace": detection.ACEDetector, "smf": detection.SMFDetector}
    spectra = read_targets(target, bands)[..., kept]
    made: Detector = kinds[name](spectra, convention=convention, **options)
    return made
