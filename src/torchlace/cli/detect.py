"""``torchlace detect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchlace._text import counted
from torchlace.cli.common import Device, plain_errors, say
from torchlace.cli.progress import reporting


def detect(
    cube: Annotated[
        Path,
        typer.Argument(
            help="Image (H, W, bands) or pixels (N, bands): .npy, ENVI's .hdr, .zarr, .tif."
        ),
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
    columns: Annotated[
        int | None,
        typer.Option(help="Columns that share a background, for push-broom sensors; all if left."),
    ] = None,
    false_alarm: Annotated[float, typer.Option(help="Share of background pixels found.")] = 1e-3,
    threshold: Annotated[
        str, typer.Option(help="cfar (by theory), empirical (counted) or auto")
    ] = "auto",
    device: Device = "auto",
) -> None:
    """Find a spectrum, or anomalies, in a hyperspectral image."""
    with plain_errors():
        import numpy as np

        from torchlace.detection.scene import detect_in_file

        with reporting() as reporter:
            planes, limits, empty = detect_in_file(
                cube,
                target,
                out,
                png=png,
                drop_bands=drop_bands,
                detector=detector,
                convention=convention,
                reporter=reporter,
                covariance=covariance,
                window=window,
                columns=columns,
                false_alarm=false_alarm,
                threshold=threshold,
                device=device,
            )
    for number in range(planes.shape[-1]):
        plane, limit = planes[..., number], limits[..., number]
        place = tuple(map(int, np.unravel_index(np.nanargmax(plane), plane.shape)))
        name = f"target {number + 1}: " if planes.shape[-1] > 1 else ""
        ends = dict.fromkeys(f"{end(limit):.6g}" for end in (np.min, np.max))
        say(
            f"{name}{int((plane > limit).sum())} of {(~np.isnan(plane)).sum()} pixels above "
            f"{' to '.join(ends)}, false-alarm rate {false_alarm:g}; largest "
            f"{np.nanmax(plane):.6g} at {place}"
        )
    if empty:
        say(f"left out {counted(empty, 'pixel')} without data, NaN in {out}")
    say(f"scores in {out}" + (f", map in {png}" if png is not None else ""))
