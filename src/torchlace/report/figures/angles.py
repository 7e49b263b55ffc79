"""Histograms of the angle to the signatures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from torchlace.report.colours import palette
from torchlace.report.style import COLUMN, blank, grid, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        axes.set_title(shorten(name, 48))
        axes.set_ylabel("images, %")
        axes.set_xlim(0, 180)
        # Room for the legend above the bars.
        axes.set_ylim(0, 1.5 * axes.get_ylim()[1])
        axes.legend(loc="upper right")
        grid(axes)
    panels[-1].set_xticks(range(0, 181, 30))
    panels[-1].set_xlabel("angle θ to the signature, degrees")
    return figure
