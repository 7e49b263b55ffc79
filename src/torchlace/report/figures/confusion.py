"""The confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from torchlace.report.style import INK, PAGE, blank, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COUNTED = 20


@styled
def confusion_matrix(counts: ArrayLike, class_names: Sequence[str]) -> Figure:
    """Where the images of each class went, a row for each true class.

    Colours are shares of the row, so that classes of any size compare, on a scale that shows small
    shares too. Up to 20 classes the counts
    are written in, and the zeros left out.

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
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
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
