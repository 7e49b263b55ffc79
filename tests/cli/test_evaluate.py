import json
import re

import numpy as np
import pytest
from cli.inside import torchlace, trained
from PIL import Image
from training import processes
from training.processes import watched
from training.rewriting import rewrite_json

from torchlace.evaluation import measures
from torchlace.evaluation.scores import verdict
from torchlace.training import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    trained(folder, "--data", "digits", "--epochs", 3)
    return folder


@pytest.fixture(scope="module")
def done(place):
    return processes.torchlace("evaluate", "run", "--json", folder=place)


def test_json_is_what_is_added_to_the_run(place, done):
    assert (done.code, done.err) == (0, "")
    scores = done.json()
    kept = Run(place / "run").read_json(place / "run" / "evaluation.json")
    classes = dict(zip(map(str, range(10)), kept["class_accuracy"], strict=True))
    assert scores == {"run": "run", **kept, "classes": classes}
    result = json.loads((place / "run" / "result.json").read_text())
    assert scores["accuracy"] == result["test_accuracy"]
    assert scores["calibrated_loss"] == pytest.approx(result["test_calibrated_loss"], rel=1e-5)


def test_the_table_shows_the_same(place, done):
    scores = done.json()
    table = torchlace("evaluate", "run", folder=place).out
    assert "run: 359 test images of digits" in table
    for each in measures():
        value = each.value(scores)
        if not each.name.startswith("clusters."):
            assert re.search(rf"{re.escape(each.heading)} *│ +{value:,.{each.digits}f} ", table)
        else:
            assert f" {value:,.{each.digits}f} " in table
    assert all(f"{value:.2f}" in table for value in scores["classes"].values())


def test_a_verdict_in_words_comes_first(place, done):
    scores = done.json()
    first, second, third = torchlace("evaluate", "run", folder=place).out.splitlines()[:3]
    assert first.startswith(f"right for {scores['accuracy']:.1f} % of 359 test images (95 % inter")
    assert "its probabilities" in second
    counts = scores["confusion"]
    worst = max(counts[row][column] for row in range(10) for column in range(10) if row != column)
    assert re.match(rf"most often confused: \d taken for \d \({worst} of \d+\), ", third)


@pytest.mark.parametrize(
    ("right", "confidence", "says"),
    [
        (9_000, 0.91, "can be trusted: they are 1.0 points off"),
        (9_000, 0.95, "are roughly right: they are 5.0"),
        (7_000, 0.9, "can't be trusted: they are 20.0"),
        (
            27,
            0.94,
            "30 images are too few to tell whether its probabilities can be trusted: they are 4.0",
        ),
    ],
)
def test_probabilities_that_can_be_trusted(right, confidence, says):
    count = 30 if right < 100 else 10_000
    scores = {
        "accuracy": 100 * right / count,
        "confusion": [[right, 0], [0, count - right]],
        "calibrated_ece": abs(confidence - right / count),
        "reliability": {"after": [{"count": count, "confidence": confidence}, {"count": 0}]},
    }
    assert says in verdict(scores, ["cat", "dog"])[1]
    assert len(verdict(scores, ["cat", "dog"])) == 2


def test_classes_of_one_name_are_told_apart(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (90, 8, 8), np.uint8)
    names = ["crane", "gull", "crane"]
    np.savez(tmp_path / "a.npz", x_train=images, y_train=np.arange(90) % 3, class_names=names)
    command = ("train", "--data", "a.npz", "--backbone", "small-cnn", "--epochs", 1, "--run", "run")
    assert torchlace(*command, folder=tmp_path).code == 0
    scores = torchlace("evaluate", "run", "--json", folder=tmp_path).json()
    assert list(scores["classes"]) == ["crane (0)", "gull", "crane (2)"]
    assert list(scores["classes"].values()) == scores["class_accuracy"]
    table = torchlace("evaluate", "run", folder=tmp_path).out
    assert all(f"│ {name} " in table for name in scores["classes"])
    Image.fromarray(images[0]).save(tmp_path / "a.png")
    (only,) = torchlace("predict", "run", "a.png", "--json", folder=tmp_path).json()
    assert {each["class"] for each in only["classes"]} == set(scores["classes"])


def test_refresh_computes_anew(place, done):
    path = place / "run" / "evaluation.json"
    kept = path.read_text()
    rewrite_json(path, accuracy=-1.0)
    again = torchlace("evaluate", "run", "--json", folder=place)
    assert again.json()["accuracy"] == -1
    assert again.err.startswith("note: the accuracy is -1.0000 % here and ")
    command = ("evaluate", "run", "--json", "--refresh")
    assert processes.torchlace(*command, folder=place).json() == done.json()
    assert path.read_text() == kept


def test_progress_is_shown_where_someone_looks(place):
    """On a terminal the bars go to the standard error; the output stays clean."""
    code, out, seen = watched("evaluate", "run", "--json", "--refresh", folder=place)
    assert code == 0, seen
    assert json.loads(out)["run"] == "run"
    assert b"features" in seen
    assert b"clusters" in seen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere holds no run: there is no config.yaml"),
        (("run", "--device", "cuda"), "there is no CUDA device here: use --device cpu"),
        (
            ("run", "--device", "abacus"),
            'unknown device \'abacus\': use --device cpu, "cuda" or "auto"',
        ),
        (
            ("young",),
            "young is not finished: the command that trains it goes on with it",
        ),
    ],
)
def test_errors_are_one_line(arguments, message, place):
    young = place / "young"
    young.mkdir(exist_ok=True)
    (young / "config.yaml").write_bytes((place / "run" / "config.yaml").read_bytes())
    found = torchlace("evaluate", *arguments, folder=place)
    assert (found.code, found.out, found.err) == (1, "", f"error: {message}\n")


def test_it_needs_no_optional_package(place, done):
    block = place / "without"
    for missing in ("openTSNE", "umap", "plotly", "ray", "pytorch_metric_learning"):
        (block / missing).mkdir(parents=True)
        text = f"raise ModuleNotFoundError('No module named {missing}')"
        (block / missing / "__init__.py").write_text(text)
    command = ("evaluate", "run", "--json", "--refresh")
    found = processes.torchlace(*command, folder=place, before_all_else=block)
    assert found.code == 0, found.err
    assert found.json() == done.json()
