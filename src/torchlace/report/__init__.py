"""Figures to print and a page to open."""

from torchlace.report.colours import palette
from torchlace.report.figures import (
    angle_histograms,
    comparison_bars,
    confusion_matrix,
    curve_panels,
    embedding_panels,
    learning_curves,
    reliability_diagram,
    whitening_spectrum,
)
from torchlace.report.page import Report, write_report
from torchlace.report.style import save

__all__ = [
    "Report",
    "angle_histograms",
    "comparison_bars",
    "confusion_matrix",
    "curve_panels",
    "embedding_panels",
    "learning_curves",
    "palette",
    "reliability_diagram",
    "save",
    "whitening_spectrum",
    "write_report",
]
