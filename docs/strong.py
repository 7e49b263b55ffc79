"""Draw the chart of today's accuracies from the committed results.

python docs/strong.py [PICTURE]         # docs/images/strong.png by default
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.style import context

from torchlace.experiments import load_experiment, read_lines
from torchlace.report.style import FAINT, STYLE

ROOT = Path(__file__).resolve().parents[1]
HEADS = {
    "softmax": "softmax",
    "smoothing": "label smoothing .1",
    "logitnorm": "LogitNorm",
    "lace": "LACE",
}
COLUMNS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SCORES = {
    "relative-ace": ("relative ACE", "#0072b2", "o"),
    "energy": ("energy", "#e69f00", "s"),
    "nearest-neighbours": ("nearest neighbours", "#009e73", "^"),
    "max-softmax": ("largest probability", "#cc79a7", "v"),
}


def finished() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The finished lines of each head on each set."""
    lines = read_lines(ROOT / "results")
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell in load_experiment("strong").cells():
        record = lines.get(cell.task.name)
        if record is not None and record.finished:
            found.setdefault((cell.column, cell.row), []).append(record.line)
    return found


def told_apart(line: dict[str, Any], score: str) -> float:
    """Mean AUROC of a score over the unknown sets, in percent."""
    return 100 * mean(each["auroc"] for each in line["unknown"][score].values())


def main(picture: Path) -> None:
    """Draw a row for each set, with accuracy, calibration error and unknown samples."""
    found = finished()
    with context(STYLE):
        figure = Figure(figsize=(9, 4.6))
        figure.get_layout_engine().set(hspace=0.08)
        grid = figure.subplots(2, 3, sharey="row")
        for row, (column, title) in zip(grid, COLUMNS.items(), strict=True):
            heads = [name for name in HEADS if (column, name) in found]
            for place, head in enumerate(heads):
                lines = found[column, head]
                accuracies = [line["test_accuracy"] for line in lines]
                row[0].plot(accuracies, [place] * len(lines), "o", color="#0072b2", alpha=0.7)
                raw, fitted = (
                    100 * mean(line[name] for line in lines) for name in ("ece", "calibrated_ece")
                )
                row[1].plot([raw, fitted], [place] * 2, color=FAINT, zorder=1)
                row[1].plot(raw, place, "o", color="#d55e00", label="as it comes")
                row[1].plot(fitted, place, "o", mfc="white", color="#d55e00", label="temperature")
                for step, (score, (label, color, mark)) in enumerate(SCORES.items()):
                    value = mean(told_apart(line, score) for line in lines)
                    height = place + 0.17 * (step - 1.5)
                    row[2].plot(value, height, mark, color=color, label=label, markersize=5)
            row[0].set_yticks(range(len(heads)), [HEADS[name] for name in heads])
            row[0].set_ylim(len(heads) - 0.5, -0.5)
            row[0].set_title(title, loc="left")
            low, high = row[0].get_xlim()
            row[0].set_xlim((low + high) / 2 - 0.75, (low + high) / 2 + 0.75)
            row[1].set_xlim(left=0)
            for axes in row:
                axes.grid(axis="y", color=FAINT)
                axes.tick_params(axis="y", length=0)
        names = ("test accuracy, %, each seed", "calibration error, %", "unknown samples, AUROC, %")
        for axes, name in zip(grid[1], names, strict=True):
            axes.set_xlabel(name)
        for axes in grid[0][1:]:
            handles, labels = axes.get_legend_handles_labels()
            unique = dict(zip(labels, handles, strict=True))
            axes.legend(
                unique.values(), unique, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2
            )
        figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "docs/images/strong.png")
