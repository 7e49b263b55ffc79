"""Figures of one score each: confusion, reliability, angles to the signatures, spectrum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from torchlace.report.style import COLUMN, FAINT, INK, PAGE, blank, grid, palette, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bins = Sequence[Mapping[str, Any]]
# Counts are written into the confusion matrix up to so many classes.
_COUNTED = 20


@styled
def confusion_matrix(counts: ArrayLike, class_names: Sequence[str]) -> Figure:
    """Where the images of each class went, a row for each true class.

    Colours are shares of the row, so that classes of any size compare, on a scale that shows small
    shares too. Up to 20 classes the counts are written in, and the zeros left out.

    Args:
        counts: (C, C), true class by predicted class.
        class_names: a name for each class.

    Example:
        >>> figure = confusion_matrix([[8, 1], [0, 9]], ["cat", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['8', '1', '9']
    """
    from matplotlib.colors import PowerNorm

    matrix = np.asarray(counts)
    classes = len(class_names)
    if matrix.shape != (classes, classes):
        raise ValueError(
            f"counts must be ({classes}, {classes}), a row and a column for each of the "
            f"{classes} class names, got {matrix.shape}"
        )
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = min(PAGE + 3, max(3.6, 0.36 * classes + 1.4))
    figure = blank(side + 0.4, side)
    figure.set_layout_engine("compressed")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1))
    # Points that a row is high, less the margin that labels take.
    font = min(7.0, 72 * 0.72 * side / classes)
    names = [shorten(name, 18) for name in class_names]
    slanted = max(map(len, names)) > 3
    axes.set_xticks(range(classes), names, fontsize=font, rotation=90 if slanted else 0)
    axes.set_yticks(range(classes), names, fontsize=font)
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="predicted", ylabel="true")
    if classes <= _COUNTED:
        for (row, column), count in np.ndenumerate(matrix):
            if count:
                colour = "white" if shares[row, column] > 0.3 else INK
                size = min(7.0, font * 4 / max(3, len(str(count))))
                axes.text(
                    column, row, str(count), ha="center", va="center", color=colour, fontsize=size
                )
    bar = figure.colorbar(image, ax=axes, ticks=[0, 0.01, 0.1, 0.25, 0.5, 1], aspect=40, pad=0.02)
    bar.ax.set_yticklabels(["0", "1 %", "10 %", "25 %", "50 %", "100 %"])
    bar.set_label("share of the true class")
    bar.outline.set_visible(False)
    return figure


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
        lower = np.array([each["lower"] for each in full])
        width = np.array([each["upper"] for each in full]) - lower
        centre = lower + width * (0.275 + 0.45 * place)
        bottom.bar(centre, [each["count"] for each in full], width=0.45 * width, color=colour)
    top.set(xlim=(0, 1), ylim=(0, 1), ylabel="share right")
    bottom.set(xlabel="confidence", ylabel="images")
    bottom.spines["bottom"].set_color(FAINT)
    figure.legend(loc="outside upper center", ncols=2)
    grid(top, "both")
    grid(bottom)
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
