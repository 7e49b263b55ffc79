"""Figures to print and a page to open."""

from torchlace.report.features import angle_histograms, embedding_panels, whitening_spectrum
from torchlace.report.page import Report, write_report
from torchlace.report.scores import (
    comparison_bars,
    confusion_matrix,
    curve_panels,
    learning_curves,
    reliability_diagram,
)
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
