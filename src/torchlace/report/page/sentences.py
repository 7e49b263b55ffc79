"""What the page says in words, above all of its figures, for those who can't see them.

The functions ``of_…`` are called by the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlace.report.page.gather import Group, Shown


def percent(number: str) -> str:
    """A number with its sign, which no line separates from it."""
    return f"{number}\u00a0%"


def points(number: float) -> str:
    """A difference of percentages, to a tenth."""
    text = f"{number:.1f}"
    return f"{text}\u00a0{'point' if text == '1.0' else 'points'}"


def listed(names: Sequence[str]) -> str:
    """Names as a person lists them."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def confusions(counts: Any, most: int) -> list[tuple[int, int, int]]:
    """The most frequent mistakes: true class, class it was taken for, how often."""
    wrong = np.array(counts)
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:most]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    return [(int(i), int(j), int(wrong[i, j])) for i, j in pairs if wrong[i, j]]


def of_bars(groups: Sequence[Group]) -> str:
    """What the bars show: the test accuracy of every setting."""
    bars = "; ".join(f"{group.label} {percent(group.accuracy.text())}" for group in groups)
    return f"Bars of test accuracy. {bars}."


def of_curves(runs: Sequence[Shown]) -> str:
    """At which epoch and accuracy the learning curve of every run ends."""
    parts = []
    for run in runs:
        last = run.inspection.history[-1]
        parts.append(
            f"{run.name} ends after {last['epoch']} epochs at a validation accuracy of "
            f"{percent(format(last['val_accuracy'], '.1f'))}, epoch {run.chosen} chosen"
        )
    return f"Learning curves. {'; '.join(parts)}."


def of_sphere(run: Shown) -> str:
    """What the sphere of a run shows, and its silhouette."""
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
    """What the confusion matrix shows: the three most frequent mistakes."""
    names = run.inspection.class_names
    found = confusions(run.inspection.scores["confusion"], 3)
    mistakes = "; ".join(f"{names[i]} taken for {names[j]} {n} times" for i, j, n in found)
    return f"Confusion matrix of {run.name}. {mistakes or 'No mistakes'}."


def of_reliability(run: Shown) -> str:
    """The calibration error before and after the temperature."""
    scores = run.inspection.scores
    before, after = (percent(f"{100 * scores[name]:.1f}") for name in ("ece", "calibrated_ece"))
    return (
        f"Reliability diagram of {run.name}. The expected calibration error is {before} before and "
        f"{after} after the temperature."
    )


def of_angles(run: Shown) -> str:
    """The mean angles to the true and to the nearest wrong signature."""
    angles = run.inspection.scores["angles"]
    return (
        f"Histograms of angles in {run.name}: {angles['true']['mean']:.0f}° on average "
        f"to the own signature, to the nearest wrong one {angles['nearest_wrong']['mean']:.0f}°."
    )


def of_spectrum(runs: Sequence[Shown]) -> str:
    """How much the variance of the background differs between directions."""
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
