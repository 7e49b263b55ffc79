"""The reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchlace.report.colours import palette
from torchlace.report.style import COLUMN, FAINT, INK, blank, grid, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bins = Sequence[Mapping[str, Any]]


@styled
def reliability_diagram(before: Bins, after: Bins) -> Figure:
    """How often predictions of some confidence are right, before and after the temperature.

    On the diagonal, predictions of 80 % are right 80 % of the time. Below it are the images that
    each bin holds.

    Args:
        before: bins with lower, upper, count, confidence and accuracy (shares of 1).
        after: the same with the temperature applied.

    Example:
        >>> one = {"lower": 0.9, "upper": 1.0, "count": 5, "confidence": 0.95, "accuracy": 0.8}
        >>> len(reliability_diagram([one], [one]).axes)
        2
    """
    figure = blank(COLUMN, 1.25 * COLUMN)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    top.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    first, second = palette(2)
    series = (
        ("before the temperature", before, second, "s"),
        ("after the temperature", after, first, "o"),
    )
    for place, (name, bins, colour, marker) in enumerate(series):
        full = [each for each in bins if each["count"]]
        top.plot(
            [each["confidence"] for each in full],
            [each["accuracy"] for each in full],
            color=colour,
            marker=marker,
            markersize=3.5,
            label=name,
            clip_on=False,
        )
        # The two share every bin, half each.
        bottom.bar(
            [_centre(each, place) for each in full],
            [each["count"] for each in full],
            width=[(each["upper"] - each["lower"]) * 0.45 for each in full],
            color=colour,
        )
    top.set(xlim=(0, 1), ylim=(0, 1), ylabel="share right")
    bottom.set(xlabel="confidence", ylabel="images")
    bottom.spines["bottom"].set_color(FAINT)
    figure.legend(loc="outside upper center", ncols=2)
    grid(top, "both")
    grid(bottom)
    return figure


def _centre(each: Mapping[str, Any], place: int) -> float:
    width = each["upper"] - each["lower"]
    return float(each["lower"] + width * (0.275 + 0.45 * place))
