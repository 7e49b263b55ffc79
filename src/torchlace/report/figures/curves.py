"""Learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchlace.report.colours import palette
from torchlace.report.style import PAGE, blank, grid, shorten, styled
from torchlace.training.progress import best_epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

History = Sequence[Mapping[str, Any]]


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
        label = shorten(name, 36)
        _line(loss, rows, "train_loss", colour, None, label, linestyle=(0, (2, 1.2)), linewidth=1)
        _line(loss, rows, "val_loss", colour, epoch, label)
        _line(accuracy, rows, "val_accuracy", colour, epoch, label)
    _finish(loss, "Loss: training dashed, validation solid", "loss")
    _finish(accuracy, "Validation accuracy: dot at the chosen epoch", "accuracy, %")
    handles, labels = accuracy.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))
    return figure


def _line(
    axes: Axes,
    rows: History,
    column: str,
    colour: str,
    epoch: int | None,
    label: str,
    **look: Any,
) -> None:
    axes.plot(
        [row["epoch"] for row in rows],
        [row[column] for row in rows],
        color=colour,
        label=label,
        marker="." if len(rows) == 1 else None,
        **look,
    )
    for row in rows:
        if row["epoch"] == epoch:
            mark: Any = {"marker": "o", "markersize": 5.5, "markeredgecolor": "white", "zorder": 4}
            axes.plot(row["epoch"], row[column], color=colour, **mark)


def _finish(axes: Axes, title: str, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title)
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    grid(axes)
