"""Figures of features: embedded, their angles to the signatures, the spectrum of the background."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchlace.report.style import COLUMN, FAINT, PAGE, RED, blank, grid, palette, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Beyond the colours that are told apart at a glance, shapes help.
_SHAPES = "osD^v<>PX*"
_COLOURS = 10
_LISTED = 40


@styled
def embedding_panels(
    panels: Mapping[str, tuple[ArrayLike, ArrayLike | None]],
    labels: ArrayLike,
    class_names: Sequence[str],
) -> Figure:
    """Embedded images side by side, coloured by class, signatures as crosses outlined in red.

    Points in the plane are drawn as they are; points in space are drawn around the unit sphere, as
    Figure 2 of the paper does. Before and after whitening makes its Figure 3.

    Args:
        panels: for each title the points, (N, 2) or (N, 3), and signatures, (C, same), or None.
        labels: class of every point, (N,).
        class_names: a name for each class.

    Example:
        >>> points = [[0.0, 1.0], [1.0, 0.0]]
        >>> figure = embedding_panels({"raw": (points, None)}, [0, 1], ["cat", "dog"])
        >>> len(figure.axes)
        1
    """
    if not panels:
        raise ValueError("an embedding needs at least one panel")
    classes = np.asarray(labels)
    unnamed = np.setdiff1d(classes, np.arange(len(class_names)))
    if len(unnamed):
        raise ValueError(
            f"labels must be below the {len(class_names)} class names, got {unnamed[:5].tolist()}"
        )
    count = len(panels)
    # Pairs stay together, and few places stay empty.
    across = {1: 1, 2: 2, 3: 3, 4: 2}.get(count) or min((3, 4), key=lambda row: -count % row)
    down = -(-count // across)
    titles = [textwrap.fill(shorten(title, 40), 80 // across) for title in panels]
    lines = max(title.count("\n") for title in titles)
    shown = min(len(class_names), _LISTED)
    columns = max(1, min(10, shown, int(110 / (4 + max(map(len, class_names))))))
    legend = 0.17 * -(-shown // columns) + 0.1
    figure = blank(PAGE, down * (PAGE / max(2, across) + 0.2 + 0.15 * lines) + legend)
    for place, (title, (points, signatures)) in enumerate(panels.items(), start=1):
        where = np.asarray(points, dtype=float)
        if where.ndim != 2 or len(where) != len(classes) or where.shape[1] not in (2, 3):
            raise ValueError(
                f"points of {title!r} must be ({len(classes)}, 2 or 3), one for each label, got "
                f"{where.shape}"
            )
        flat = where.shape[1] == 2
        axes: Any = figure.add_subplot(down, across, place, projection=None if flat else "3d")
        if not flat:
            _sphere(axes)
        _points(axes, where, classes, class_names)
        if signatures is not None:
            # On the sphere just outside, or the points would hide them.
            crosses = np.asarray(signatures, dtype=float) * (1 if flat else 1.04)
            look: Any = {"marker": "X", "color": "white", "edgecolors": RED, "linewidths": 1.1}
            axes.scatter(*crosses.T, s=42, zorder=5, **look)
        axes.set_title(titles[place - 1])
    handles, names = figure.axes[0].get_legend_handles_labels()
    cut = f"the first {shown} of {len(class_names)} classes"
    figure.legend(
        handles[:shown],
        names[:shown],
        title=cut if shown < len(class_names) else None,
        loc="outside lower center",
        ncols=columns,
        markerscale=2.5,
        handletextpad=0.1,
        columnspacing=1.0,
    )
    return figure


@styled
def angle_histograms(angles: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The angle θ of every image to its own signature and to the nearest wrong one.

    The further the two lie apart, the wider the margin; an image is wrong where the second angle is
    the smaller.

    Args:
        angles: for each run ``{"true": ..., "nearest_wrong": ...}``, both with mean and histogram,
            counts over equal bins from 0° to 180°.

    Example:
        >>> one = {"mean": 30.0, "histogram": [0] * 30 + [9] + [0] * 149}
        >>> len(angle_histograms({"lace": {"true": one, "nearest_wrong": one}}).axes)
        1
    """
    if not angles:
        raise ValueError("histograms need at least one run")
    figure = blank(COLUMN, 0.45 + 1.35 * len(angles))
    panels = figure.subplots(len(angles), 1, sharex=True, squeeze=False)[:, 0]
    first, second = palette(2)
    for axes, (name, each) in zip(panels, angles.items(), strict=True):
        for key, label, colour in (
            ("true", "own class", first),
            ("nearest_wrong", "nearest wrong class", second),
        ):
            counts = np.asarray(each[key]["histogram"], dtype=float)
            counts /= max(counts.sum(), 1)
            edges = np.linspace(0, 180, len(counts) + 1)
            full = np.flatnonzero(counts)
            if len(full):
                # No line along the axis where there is nothing.
                counts = counts[full[0] : full[-1] + 1]
                edges = edges[full[0] : full[-1] + 2]
            axes.stairs(100 * counts, edges, fill=True, color=colour, alpha=0.45)
            text = f"{label}: mean {each[key]['mean']:.1f}°"
            axes.stairs(100 * counts, edges, color=colour, linewidth=1, label=text)
        # Room for the legend above the bars.
        axes.set(xlim=(0, 180), ylim=(0, 1.5 * axes.get_ylim()[1]), ylabel="images, %")
        axes.set_title(shorten(name, 48))
        axes.legend(loc="upper right")
        grid(axes)
    panels[-1].set(xticks=range(0, 181, 30), xlabel="angle θ to the signature, degrees")
    return figure


@styled
def whitening_spectrum(spectra: Mapping[str, ArrayLike]) -> Figure:
    """Eigenvalues of background covariances, largest first, on a logarithmic axis.

    A flat line means directions of equal variance; the faster it falls, the more whitening changes.

    Args:
        spectra: for each run its eigenvalues, descending. Values that are not positive can't be
            drawn on a logarithmic axis and are left out.

    Example:
        >>> len(whitening_spectrum({"lace": [4.0, 1.0, 0.01]}).axes[0].lines)
        1
    """
    if not spectra:
        raise ValueError("a spectrum needs at least one run")
    figure = blank(COLUMN, 2.5 + 0.16 * ((len(spectra) + 1) // 2))
    axes = figure.subplots()
    for (name, values), colour in zip(spectra.items(), palette(len(spectra)), strict=True):
        eigenvalues = np.asarray(values, dtype=float)
        eigenvalues = np.where(eigenvalues > 0, eigenvalues, np.nan)
        axes.plot(np.arange(1, len(eigenvalues) + 1), eigenvalues, color=colour, label=name)
    axes.set(yscale="log", xlabel="direction, by falling variance", ylabel="variance")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    if len(spectra) > 1:
        handles, labels = axes.get_legend_handles_labels()
        names = [shorten(label) for label in labels]
        figure.legend(handles, names, loc="outside lower center", ncols=2)
    grid(axes, "both")
    return figure


def _points(
    axes: Any, where: NDArray[np.float64], labels: NDArray[Any], class_names: Sequence[str]
) -> None:
    size = float(np.clip(9000 / max(len(where), 1), 2.5, 14))
    for label, colour in enumerate(palette(len(class_names))):
        axes.scatter(
            *where[labels == label].T,
            s=size,
            color=colour,
            marker=_SHAPES[label // _COLOURS % len(_SHAPES)],
            linewidths=0,
            label=shorten(class_names[label]),
            rasterized=len(where) > 2000,
        )
    if where.shape[1] == 2:
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(FAINT)


def _sphere(axes: Any) -> None:
    turn, rise = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    x, y, z = np.cos(turn) * np.sin(rise), np.sin(turn) * np.sin(rise), np.cos(rise)
    axes.plot_wireframe(x, y, z, color=FAINT, linewidth=0.4)
    axes.set_axis_off()
    # By itself matplotlib draws the wires over the points.
    axes.computed_zorder = False
    axes.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
    axes.set_box_aspect((1, 1, 1), zoom=1.6)
