"""The spectrum of the whitening."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from torchlace.report.colours import palette
from torchlace.report.style import COLUMN, blank, grid, shorten, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
    axes.set_xlabel("direction, by falling variance")
    axes.set_ylabel("variance")
    if len(spectra) > 1:
        handles, labels = axes.get_legend_handles_labels()
        names = [shorten(label) for label in labels]
        figure.legend(handles, names, loc="outside lower center", ncols=2)
    grid(axes, "both")
    return figure
