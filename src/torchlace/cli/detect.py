"""``torchlace detect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace.cli.common import plain_errors

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
    png: Annotated[Path | None, typer.Option(help="Where a map of the scores goes.")] = None,
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

        from torchlace.detection.files import read_cube
        from torchlace.training.rundir import write_whole

        pixels = read_cube(cube)
        options = {
            "covariance": covariance,
            "window": window,
            "false_alarm": false_alarm,
            "threshold": threshold,
            "device": device,
        }
        found = _make(detector, target, pixels.shape[-1], convention, options)
        if png is not None and pixels.ndim != 3:
            raise ValueError(
                f"--png draws images; {cube} holds {len(pixels)} pixels without places"
            )
        scores = found.fit(pixels).score_samples(pixels)
        limits = np.atleast_1d(found.fitted_threshold_)
        write_whole(out, lambda file: np.save(file, scores))
        planes = scores.reshape(*pixels.shape[:-1], -1)
        if png is not None:
            figure = _draw(planes, limits, detector)
            write_whole(png, lambda file: figure.savefig(file, format="png"))
    for number, limit in enumerate(np.broadcast_to(limits, planes.shape[-1:])):
        plane = planes[..., number]
        place = tuple(map(int, np.unravel_index(plane.argmax(), plane.shape)))
        name = f"target {number + 1}: " if planes.shape[-1] > 1 else ""
        typer.echo(
            f"{name}{int((plane > limit).sum())} of {plane.size} pixels above {limit:.6g}, "
            f"false-alarm rate {false_alarm:g}; largest {plane.max():.6g} at {place}"
        )
    typer.echo(f"scores in {out}" + (f", map in {png}" if png is not None else ""))


def _make(
    name: str, target: Path | None, bands: int, convention: str, options: dict[str, Any]
) -> Detector:
    from torchlace import detection
    from torchlace._checks import check_choice
    from torchlace.detection.files import read_targets

    check_choice("detector", name, ("ace", "smf", "rx"))
    if name == "rx":
        if target is not None:
            raise ValueError("rx looks for anomalies and takes no --target")
        return detection.RXDetector(**options)
    if target is None:
        raise ValueError(f"{name} looks for a spectrum: give --target FILE, or --detector rx")
    kinds: dict[str, Any] = {"ace": detection.ACEDetector, "smf": detection.SMFDetector}
    made: Detector = kinds[name](read_targets(target, bands), convention=convention, **options)
    return made


def _draw(planes: Any, limits: Any, name: str) -> Any:
    """Maps of the scores, one for each target, with what was found marked."""
    import numpy as np
    from matplotlib.figure import Figure

    height, width, count = planes.shape
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Figure(figsize=(5 * columns, 4.5 * rows * min(max(height / width, 0.4), 2)))
    figure.set_layout_engine("constrained")
    for number, limit in enumerate(np.broadcast_to(limits, (count,))):
        plane, axes = planes[..., number], figure.add_subplot(rows, columns, number + 1)
        low, high = np.quantile(plane, [0.001, 0.999])
        drawn = axes.imshow(plane, cmap="viridis", vmin=low, vmax=high, interpolation="nearest")
        found = np.argwhere(plane > limit)
        figure.colorbar(drawn, ax=axes, extend="both")
        # More marks than that would hide the map.
        if len(found) <= plane.size // 50:
            style: dict[str, Any] = {"facecolors": "none", "edgecolors": "red", "linewidths": 0.8}
            axes.scatter(found[:, 1], found[:, 0], 40, **style)
        label = f"{name} {number + 1}" if count > 1 else name
        axes.set_title(f"{label}: {len(found)} pixels above {limit:.3g}")
    return figure
