"""What a figure shows, for those who don't see it."""

from __future__ import annotations

from collections.abc import Sequence

from torchlace.report.page.gather import Shown
from torchlace.report.page.grouping import Group
from torchlace.report.page.measures import percent
from torchlace.report.page.summary import accuracy, confusions


def of_bars(groups: Sequence[Group]) -> str:
    """Test accuracy of every setting."""
    listed = "; ".join(f"{group.label} {percent(accuracy(group).text())}" for group in groups)
    return f"Bars of test accuracy. {listed}."


def of_curves(runs: Sequence[Shown]) -> str:
    """How every run came to its end."""
    parts = []
    for run in runs:
        last = run.inspection.history[-1]
        parts.append(
            f"{run.name} ends after {last['epoch']} epochs at a validation accuracy of "
            f"{percent(format(last['val_accuracy'], '.1f'))}, epoch {run.chosen} chosen"
        )
    return f"Learning curves. {'; '.join(parts)}."


def of_sphere(run: Shown) -> str:
    """How well the classes are separated."""
    clusters = run.inspection.scores.get("clusters", {})
    parts = [
        f"{name} whitening the silhouette is {_number(clusters[space]['silhouette'])}"
        for space, name in (("raw", "before"), ("whitened", "after"))
        if space in clusters
    ]
    count = len(run.spheres["raw"].indices)
    return (
        f"{count:,} test images of {run.name} embedded on a sphere, coloured by class"
        f"{': ' if parts else ''}{', '.join(parts)}. Arrow keys turn it, plus and minus zoom."
    )


def of_confusion(run: Shown) -> str:
    """The most frequent mistakes."""
    names = run.inspection.class_names
    found = confusions(run.inspection.scores["confusion"], 3)
    listed = "; ".join(f"{names[i]} taken for {names[j]} {n} times" for i, j, n in found)
    return f"Confusion matrix of {run.name}. {listed or 'No mistakes'}."


def of_reliability(run: Shown) -> str:
    """Calibration before and after the temperature."""
    scores = run.inspection.scores
    before, after = (percent(f"{100 * scores[name]:.1f}") for name in ("ece", "calibrated_ece"))
    return (
        f"Reliability diagram of {run.name}. The expected calibration error is {before} before and "
        f"{after} after the temperature."
    )


def of_angles(run: Shown) -> str:
    """Angles to the true and to the nearest wrong signature."""
    angles = run.inspection.scores["angles"]
    return (
        f"Histograms of angles in {run.name}: {angles['true']['mean']:.0f}° on average "
        f"to the own signature, to the nearest wrong one {angles['nearest_wrong']['mean']:.0f}°."
    )


def of_spectrum(runs: Sequence[Shown]) -> str:
    """How unequal the directions of the background are."""
    parts = []
    for run in runs:
        whitening = run.inspection.scores.get("whitening")
        if whitening:
            parts.append(
                f"{run.name} has a condition number of {_number(whitening['condition'])} and an "
                f"effective dimension of {_number(whitening['effective_dimension'])}"
            )
    return f"Eigenvalues of the background covariance. {'; '.join(parts)}."


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
