"""Draw the chart of the front page from the committed results.

python docs/chart.py [PICTURE]          # docs/images/results.png by default
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.style import context

from torchlace.experiments import load_experiment, mean_interval, read_lines
from torchlace.report.style import FAINT, INK, STYLE

ROOT = Path(__file__).resolve().parents[1]
ROWS = {
    "lace": ("LACE", "#0072b2", "o"),
    "smoothing": ("softmax, label smoothing .1", "#e69f00", "s"),
    "total": ("LACE, total covariance", "#cc79a7", "v"),
}


def gains(row: str) -> dict[str, tuple[float, float, float]]:
    """Mean and 95 % interval of what a row is ahead of softmax on test images, by column."""
    experiment = load_experiment("robust")
    lines = read_lines(ROOT / "results")
    right: dict[tuple[str, str, int], np.ndarray] = {}
    for cell in experiment.cells():
        record = lines.get(cell.task.name)
        if record is not None and record.finished and cell.row in (row, "softmax"):
            key = (cell.column, cell.row, cell.task.config.seed)
            right[key] = record.right()
    found = {}
    for column in experiment.columns:
        ahead = [
            100 * (bits - right[column.name, "softmax", seed])
            for (name, of, seed), bits in right.items()
            if name == column.name and of == row and (column.name, "softmax", seed) in right
        ]
        if ahead:
            mean = np.mean(ahead, axis=0)
            found[column.label] = (float(mean.mean()), *mean_interval(mean))
    return found


def main(picture: Path) -> None:
    """Draw a line for each network and set, a mark for each method."""
    found = {row: gains(row) for row in ROWS}
    labels = [
        each.label for each in load_experiment("robust").columns if each.label in found["lace"]
    ]
    with context(STYLE):
        figure = Figure(figsize=(7, 4.2))
        axes = figure.subplots()
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, (row, (label, color, mark)) in enumerate(ROWS.items()):
            heights = [
                i + 0.22 * (place - 1) for i, name in enumerate(labels) if name in found[row]
            ]
            means, lows, highs = zip(
                *(found[row][n] for n in labels if n in found[row]), strict=True
            )
            reach = np.abs(np.array([lows, highs]) - means)
            style = {"fmt": mark, "color": color, "markersize": 4.5, "elinewidth": 1.1}
            axes.errorbar(means, heights, xerr=reach, label=label, **style)
        axes.set_yticks(range(len(labels)), labels)
        axes.invert_yaxis()
        axes.grid(axis="y", color=FAINT)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(
            "test accuracy ahead of softmax, points, with 95 % intervals over test images"
        )
        figure.legend(loc="outside upper center", ncols=len(ROWS))
        figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/images/results.png")
