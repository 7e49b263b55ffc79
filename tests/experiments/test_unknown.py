"""Samples of other classes, told apart by every score when the run of a grid ends."""

import csv
import json

import numpy as np
import pytest
from cli import inside
from sklearn.datasets import load_digits

from torchlace.detection.scores import SCORES
from torchlace.evaluation import unknown_scores
from torchlace.experiments import load_experiment

GRID = """
seeds: 1
settings: {root: FOLDER, data: known, recipe: fast, backbone: small-cnn, lr: 0.05, epochs: 2}
columns:
  accuracy: {label: Accuracy, unknown: [others]}
  apart: {label: Told apart, score: SCORE, unknown: [others]}
rows:
  ace: {label: "LACE, ACE", space: ace}
  energy: {label: "LACE, energy", space: energy}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The digits below 8 as a set, and the others."""
    folder = tmp_path_factory.mktemp("grid")
    digits = load_digits()
    images = np.round(digits.images * 15.9).astype(np.uint8)
    for name, chosen, first in (("known", digits.target < 8, 0), ("others", digits.target > 7, 8)):
        x, y = images[chosen], digits.target[chosen] - first
        parts = {"x_train": x[100:], "y_train": y[100:], "x_test": x[:100], "y_test": y[:100]}
        np.savez(folder / f"{name}.npz", **parts)
    return folder


def grid(folder, score="unknown.{space}.others.auroc"):
    """The file of a grid."""
    path = folder / "mine.yaml"
    path.write_text(GRID.replace("FOLDER", str(folder)).replace("SCORE", f'"{score}"'))
    return path


def test_a_run_s_line_holds_every_score_and_the_table_shows_the_row_s(place):
    common = ("reproduce", str(grid(place)), "--runs", "runs", "--device", "cpu")
    said = inside.torchlace(*common, folder=place)
    assert said.code == 0, said.err
    (run,) = [path for path in (place / "runs").iterdir() if path.is_dir()]
    said = inside.torchlace(*common, "--show", "--out", "lines.jsonl", folder=place)
    assert said.code == 0, said.err
    (line,) = map(json.loads, (place / "lines.jsonl").read_text().splitlines())
    expected = unknown_scores(run, ["others"], device="cpu", root=place)
    assert {*line["unknown"]} == {*expected} == {*SCORES}
    for name, found in line["unknown"].items():
        assert found["others"] == pytest.approx(expected[name]["others"], abs=1e-6)
    options = ("--results", "lines.jsonl", "--format", "csv", "--out", "table.csv")
    said = inside.torchlace("reproduce", str(grid(place)), *options, folder=place)
    assert said.code == 0, said.err
    rows = [*csv.DictReader((place / "table.csv").open())]
    shown = {row["row"]: float(row["mean"]) for row in rows if row["column"] == "apart"}
    assert shown == {n: pytest.approx(expected[n]["others"]["auroc"]) for n in ("ace", "energy")}


@pytest.mark.parametrize(
    ("score", "says"),
    [
        ("unknown.lase.others.auroc", "score of unknown samples .lase.: known: ace"),
        ("unknown.ace.other.auroc", "did you mean 'others'"),
        ("unknown.ace.others.auc", "did you mean 'auroc'"),
    ],
)
def test_a_score_that_no_line_can_hold_is_refused(score, says, place):
    with pytest.raises(ValueError, match=says):
        load_experiment(grid(place, score))
