"""One function for each figure; each takes plain results and returns a matplotlib figure."""

from torchlace.report.figures.angles import angle_histograms
from torchlace.report.figures.comparison import comparison_bars
from torchlace.report.figures.confusion import confusion_matrix
from torchlace.report.figures.curves import curve_panels, learning_curves
from torchlace.report.figures.embedding import embedding_panels
from torchlace.report.figures.reliability import reliability_diagram
from torchlace.report.figures.spectrum import whitening_spectrum

__all__ = [
    "angle_histograms",
    "comparison_bars",
    "confusion_matrix",
    "curve_panels",
    "embedding_panels",
    "learning_curves",
    "reliability_diagram",
    "whitening_spectrum",
]
