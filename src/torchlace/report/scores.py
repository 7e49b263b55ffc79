"""Figures of how good runs are: curves, bars, mistakes, and how far confidence can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from torchlace.experiments.tables import deviation
from torchlace.report.style import COLUMN, FAINT, INK, PAGE, blank, grid, palette, shorten, styled
from torchlace.runs.readers import best_epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, Any]]
Bins = Sequence[Mapping[str, Any]]
# Counts are written into the confusion matrix up to so many classes.
_COUNTED = 20
_CENTRED: Any = {"ha": "center", "va": "center"}


@styled
def learning_curves(
    histories: Mapping[str, History], chosen: Mapping[str, int] | None = None
) -> Figure:
    """Losses and validation accuracy over epochs, the chosen epoch marked.

    Args:
        histories: for each run the rows of its metrics.csv, with epoch, train_loss, val_loss and
            val_accuracy.
        chosen: for each run the epoch whose weights were kept; by default that of the highest
            validation accuracy, and of equal ones of the lowest validation loss.

    Example:
        >>> row = {"epoch": 1, "train_loss": 2.0, "val_loss": 1.5, "val_accuracy": 50.0}
        >>> len(learning_curves({"lace": [row]}).axes)
        2
    """
    if not histories or not all(histories.values()):
        raise ValueError("learning curves need at least one run, with at least one epoch each")
    figure = blank(PAGE, 2.6 + 0.16 * ((len(histories) + 2) // 3))
    loss, accuracy = figure.subplots(1, 2)
    for (name, rows), colour in zip(histories.items(), palette(len(histories)), strict=True):
        epoch = (chosen or {}).get(name) or best_epoch(rows)
        _line(loss, rows, "train_loss", colour, None, linestyle=(0, (2, 1.2)), linewidth=1)
        _line(loss, rows, "val_loss", colour, epoch)
        _line(accuracy, rows, "val_accuracy", colour, epoch, label=shorten(name, 36))
    _finish(loss, "Loss: training dashed, validation solid", "loss")
    _finish(accuracy, "Validation accuracy: dot at the chosen epoch", "accuracy, %")
    handles, labels = accuracy.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))
    return figure


@styled
def curve_panels(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Figure:
    """The best validation accuracy so far over epochs, a panel for each data set.

    A line is the mean over seeds, a seed that has stopped staying at its best; a dot is where a
    seed stopped.

    Args:
        panels: by title and method, for each seed the validation accuracies of its epochs.

    Example:
        >>> figure = curve_panels({"digits": {"lace": [[80.0, 90.0, 85.0], [70.0, 88.0]]}})
        >>> figure.axes[0].lines[0].get_ydata().tolist()
        [75.0, 89.0, 89.0]
    """
    seeds = [curves for rows in panels.values() for curves in rows.values()]
    if not (panels and all(panels.values()) and all(map(len, seeds))):
        raise ValueError("every panel needs at least one method, and every method a seed")
    if not all(len(curve) and np.isfinite(curve).all() for curves in seeds for curve in curves):
        raise ValueError("every curve needs at least one epoch, and numbers only")
    methods = list(dict.fromkeys(name for rows in panels.values() for name in rows))
    names = [shorten(name, 36) for name in methods]
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    columns = max(1, min(5, len(methods), 105 // (8 + max(map(len, names)))))
    figure = blank(PAGE, 2.3 * down + 0.2 + 0.16 * -(-len(methods) // columns))
    look = dict(zip(methods, palette(len(methods)), strict=True))
    for place, (title, rows) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(down, across, place)
        best = {name: [np.maximum.accumulate(curve) for curve in rows[name]] for name in rows}
        for name, curves in best.items():
            mean = _mean(curves)
            axes.plot(np.arange(1, len(mean) + 1), mean, color=look[name], label=name)
            stops, ends = [len(curve) for curve in curves], [curve[-1] for curve in curves]
            axes.scatter(stops, ends, s=9, linewidths=0, color=look[name])
        _finish(axes, title, "validation accuracy, %" if place % across == 1 % across else "")
        _close_up(axes, best)
    handles = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    shown = [handles[name] for name in methods]
    figure.legend(shown, names, loc="outside lower center", ncols=columns)
    return figure


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
        mean, spread = fmean(each), deviation(each)
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
                axes.text(column, row, str(count), color=colour, fontsize=size, **_CENTRED)
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
        x, y = ([each[key] for each in full] for key in ("confidence", "accuracy"))
        look: Any = {"color": colour, "marker": marker, "markersize": 3.5}
        top.plot(x, y, label=name, clip_on=False, **look)
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


def axis_range(values: Sequence[float]) -> tuple[float, float]:
    """Where an axis for bars begins and ends: at zero, unless all values lie far from it."""
    low, high = min(values), max(values)
    spread = high - low
    if low <= 0 or spread > 0.25 * high:
        return min(0.0, low), max(high, 0.0) or 1.0
    step = 10.0 ** math.floor(math.log10(max(spread, 0.02 * high)))
    return max(0.0, math.floor((low - 0.5 * max(spread, step)) / step) * step), high


def _mean(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The mean of curves, each of which keeps its last value once it has ended."""
    longest = max(map(len, curves))
    held = [np.pad(curve, (0, longest - len(curve)), "edge") for curve in curves]
    mean: NDArray[np.float64] = np.mean(held, axis=0)
    return mean


def _close_up(axes: Axes, best: Mapping[str, Sequence[NDArray[np.float64]]]) -> None:
    """Cut the axes to what comes after the steep start, and name the methods that end below.

    At most two of many methods are left below.
    """
    curves = [curve for several in best.values() for curve in several]
    ends = {name: _mean(several)[-1] for name, several in best.items()}
    start = float(np.median([curve[min(7, len(curve) - 1)] for curve in curves]))
    bottom = min(start, sorted(ends.values())[2 if len(ends) > 4 else 0])
    top = max(float(curve[-1]) for curve in curves)
    margin = 0.04 * max(top - bottom, 1)
    axes.set(ylim=(bottom - margin, top + margin), xlim=(0, 1.03 * max(2, *map(len, curves))))
    below = [f"{shorten(n, 36)}: {end:.1f}" for n, end in ends.items() if end < bottom - margin]
    look: Any = {"transform": axes.transAxes, "ha": "right", "va": "bottom", "fontsize": 6.5}
    look["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}
    axes.text(0.99, 0.02, "\n".join(below), zorder=5, **look)


def _line(
    axes: Axes, rows: History, column: str, colour: str, epoch: int | None, **look: Any
) -> None:
    """A column of a run's rows over epochs, with a dot at ``epoch``."""
    epochs, values = ([row[key] for row in rows] for key in ("epoch", column))
    axes.plot(epochs, values, color=colour, marker="." if len(rows) == 1 else None, **look)
    for row in rows:
        if row["epoch"] == epoch:
            mark: Any = {"marker": "o", "markersize": 5.5, "markeredgecolor": "white", "zorder": 4}
            axes.plot(row["epoch"], row[column], color=colour, **mark)


def _finish(axes: Axes, title: str, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title)
    axes.set(xlabel="epoch", ylabel=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid(axes)
