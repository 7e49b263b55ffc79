"""Figures to print and a page to open."""

from torchlace.report.curves import comparison_bars, curve_panels, learning_curves
from torchlace.report.diagrams import (
    angle_histograms,
    confusion_matrix,
    reliability_diagram,
    whitening_spectrum,
)
from torchlace.report.embedding import embedding_panels
from torchlace.report.page import Report, write_report
from torchlace.report.style import palette, save

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
