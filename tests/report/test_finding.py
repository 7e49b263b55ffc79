"""Folders of runs in place of runs, on the command line and from Python."""

import shutil

import numpy as np
import pytest
from training.processes import torchlace

from torchlace.report import write_report
from torchlace.report.finding import find_runs
from torchlace.training import TrainConfig, train


@pytest.fixture
def folder(made, tmp_path):
    for name in ("softmax-0", "lace-0", "unfinished"):
        shutil.copytree(made.runs[name], tmp_path / "runs" / name)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "report.html").write_text("")
    return tmp_path


def test_a_folder_stands_for_the_runs_in_it_sorted(folder):
    runs = folder / "runs"
    expected = [runs / name for name in ("lace-0", "softmax-0", "unfinished")]
    assert find_runs([runs]) == expected
    assert find_runs([str(runs / "softmax-0"), runs]) == [runs / "softmax-0", *expected]
    for other in (runs / "notes", runs / "report.html", folder / "nowhere"):
        assert find_runs([other]) == [other]


def test_a_report_and_a_comparison_take_folders(folder):
    report = write_report([folder / "runs"], folder / "page.html", method="pca")
    assert sorted(report.shown) == ["lace-0", "softmax-0"]
    assert [each.name for each in report.failed] == ["unfinished"]
    rows = torchlace("compare", "runs", "--json", folder=folder).json()
    assert [row["run"] for row in rows] == ["runs/lace-0", "runs/softmax-0", "runs/unfinished"]
    assert "not finished" in rows[2]["error"]
    twice = torchlace("compare", "runs/lace-0", "runs", "--json", folder=folder).json()
    assert [row["run"] for row in twice] == [row["run"] for row in rows]


def test_a_folder_without_runs_is_said_to_be(folder):
    done = torchlace("report", "runs/notes", folder=folder)
    assert done.code == 1
    assert "runs/notes holds no run" in done.err


def test_top_5_is_left_out_among_five_classes(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (100, 8, 8), dtype=np.uint8)
    labels = np.arange(100) % 4
    parts = {"x_train": images[:60], "y_train": labels[:60]}
    np.savez(tmp_path / "four.npz", **parts, x_test=images[60:], y_test=labels[60:])
    settings = {"backbone": "small-cnn", "epochs": 1, "device": "cpu"}
    train(TrainConfig(data=str(tmp_path / "four.npz"), **settings), tmp_path / "few")
    assert "top-5" not in torchlace("compare", "few", folder=tmp_path).out
    (row,) = torchlace("compare", "few", "--json", folder=tmp_path).json()
    assert row["top5_accuracy"] is None
    write_report([tmp_path / "few"], tmp_path / "page.html", method="pca")
    text = (tmp_path / "page.html").read_text().partition('id="payload"')[0]
    assert "Accuracy,\xa0%" in text
    assert "Top 5" not in text
