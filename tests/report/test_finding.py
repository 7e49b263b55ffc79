"""Folders of runs in place of runs, on the command line and from Python."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from training.processes import torchlace

from torchlace.report import write_report
from torchlace.runs import find_runs
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
    first = [runs / "softmax-0", runs / "lace-0", runs / "unfinished"]
    assert find_runs([str(runs / "softmax-0"), runs, runs / "lace-0"]) == first
    for other in (runs / "notes", runs / "report.html", folder / "nowhere"):
        assert find_runs([other]) == [other]


def test_runs_are_found_in_folders_of_folders(folder):
    runs = folder / "runs"
    made = ("2024/march/seeds/lace", "2024/softmax", ".old/lace", "lace-0/copies/lace")
    for name in (*made, "1/2/3/4/5/too deep"):
        shutil.copytree(runs / "softmax-0", runs / name)
    found = find_runs([runs])
    names = [path.relative_to(runs).as_posix() for path in found]
    expected = ["2024/march/seeds/lace", "2024/softmax", "lace-0", "softmax-0", "unfinished"]
    assert names == expected
    rows = torchlace("compare", "runs", "--json", folder=folder).json()
    assert len(rows) == len(expected)
    assert find_runs([runs / ".old"]) == [runs / ".old" / "lace"]


def test_links_lead_to_no_run_twice_and_in_no_circle(folder):
    runs = folder / "runs"
    shutil.copytree(runs / "softmax-0", runs / "b" / "c" / "softmax")
    shutil.copytree(runs / "softmax-0", folder / "elsewhere" / "1" / "2" / "3" / "far")
    shutil.copytree(runs / "softmax-0", runs / "4" / "5" / "6" / "7" / "8" / "deep")
    links = {"b/0": "b", "b/c/0": "..", "a": "b/c", "0": "lace-0", "itself": "itself"}
    links |= {"there": "back", "back": "there", "nowhere": "gone", "up": "..", "near": "4/5/6/7"}
    for name, target in links.items():
        (runs / name).symlink_to(target if target == ".." else runs / target)
    names = [path.relative_to(runs).as_posix() for path in find_runs([runs])]
    reached = ["b/c/softmax", "lace-0", "near/8/deep", "softmax-0", "unfinished"]
    assert names == sorted(reached)
    assert find_runs([runs, runs / "a", runs / "0", runs / "up"])[: len(names)] == [
        runs / name for name in names
    ]
    rows = torchlace("compare", "runs", "runs/a", "runs/0", "--json", folder=folder).json()
    assert [row["run"] for row in rows] == [f"runs/{name}" for name in names]
    report = write_report([runs, runs / "a", runs / "0"], folder / "page.html", method="pca")
    assert len(report.shown) + len(report.failed) == len(names)


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_link_to_itself_is_said_to_hold_no_run(command, folder):
    (folder / "itself").symlink_to(folder / "itself")
    done = torchlace(command, "itself", folder=folder)
    assert done.code == 1
    assert "itself holds no run" in done.out + done.err
    assert "Traceback" not in done.err


def test_a_folder_that_may_not_be_read_holds_no_runs(folder, monkeypatch):
    real = os.scandir

    def scandir(path):
        if Path(path).name == "notes":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert len(find_runs([folder / "runs"])) == 3
    assert find_runs([folder / "runs" / "notes"]) == [folder / "runs" / "notes"]


class Without:
    """A process where a module is not to be had."""

    def __init__(self, module):
        self.module = module

    def __call__(self):
        sys.modules[self.module] = None


@pytest.mark.parametrize(
    ("method", "module", "said"),
    [
        ("tsne", "openTSNE", "t-SNE needs openTSNE: pip install 'torchlace[report]'"),
        ("umap", "umap", "UMAP needs umap-learn: pip install umap-learn"),
    ],
)
def test_a_missing_package_is_told_before_the_work(method, module, said, folder):
    run = folder / "runs" / "softmax-0"
    for kept in ("features.safetensors", "evaluation.json"):
        (run / kept).unlink()
    command = ("report", "runs/softmax-0", "--method", method)
    without = {"folder": folder, "patch": Without(module)}
    done = torchlace(*command, **without)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: {said} (No module named '{module}')\n"
    assert not (run / "features.safetensors").exists()
    # What was laid out elsewhere needs no package, and what can't be shown neither.
    assert torchlace("report", "runs/softmax-0", "--method", "pca", **without).code == 0
    done = torchlace("report", "runs/unfinished", "--method", method, **without)
    assert "not finished" in done.err
    assert said not in done.err


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
    assert "Top-5" not in text
