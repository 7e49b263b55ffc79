"""Bars that compare settings over their runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from torchlace.report.colours import palette
from torchlace.report.style import INK, PAGE, blank, grid, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@styled
def comparison_bars(
    values: Mapping[str, Sequence[float]], label: str = "test accuracy, %"
) -> Figure:
    """Mean of each setting over its runs, with the standard deviation and every single value.

    Where all values lie close together far from zero, the axis is cut and says so.

    Args:
        values: for each setting a value for each run (a seed each, as a rule).
        label: what is compared.

    Example:
        >>> figure = comparison_bars({"lace": [98.3, 98.6, 98.6], "softmax": [98.6]})
        >>> len(figure.axes[0].patches)
        2
    """
    if not values or not all(values.values()):
        raise ValueError("a comparison needs at least one setting, with at least one value each")
    figure = blank(PAGE, 0.8 + 0.34 * len(values))
    axes = figure.subplots()
    every = [value for each in values.values() for value in each]
    low, high = axis_range(every)
    names = list(values)
    for place, (name, colour) in enumerate(zip(names, palette(len(names)), strict=True)):
        each = values[name]
        mean = fmean(each)
        spread = stdev(each) if len(each) > 1 else None
        axes.barh(place, mean - low, left=low, height=0.62, color=colour, alpha=0.75)
        if spread is not None:
            axes.errorbar(mean, place, xerr=spread, color=INK, linewidth=1, capsize=3)
            axes.plot(each, [place] * len(each), ".", color=INK, markersize=3, alpha=0.7)
        text = f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f} ({len(each)} runs)"
        edge = mean if spread is None else max(*each, mean + spread)
        axes.annotate(text, (edge, place), (5, 0), textcoords="offset points", va="center", size=7)
    axes.set_yticks(range(len(names)), [shorten(name, 40) for name in names])
    axes.invert_yaxis()
    # Room for the numbers at the ends of the bars.
    axes.set_xlim(low, high + 0.4 * (high - low))
    cut = f" (axis starts at {low:g})" if low else ""
    axes.set_xlabel(f"{label}{cut}")
    axes.spines["left"].set_visible(False)
    grid(axes, "x")
    axes.tick_params(axis="y", length=0)
    return figure


def axis_range(values: Sequence[float]) -> tuple[float, float]:
    """Where an axis for bars begins and ends: at zero, unless all values lie far from it.

    Example:
        >>> axis_range([98.3, 99.1])
        (97.0, 99.1)
        >>> axis_range([0.1, 0.9])
        (0.0, 0.9)
    """
    low, high = min(values), max(values)
    spread = high - low
    if low <= 0 or spread > 0.25 * high:
        return min(0.0, low), max(high, 0.0) or 1.0
    step = 10.0 ** math.floor(math.log10(max(spread, 0.02 * high)))
    return max(0.0, math.floor((low - 0.5 * max(spread, step)) / step) * step), high
