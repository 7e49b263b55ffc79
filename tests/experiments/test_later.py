"""Classes that come after training: their order, what is told of them, and going on."""

import json

import numpy as np
import pytest
from cli import inside
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid

from torchlace.data import DataError, load_data
from torchlace.experiments import load_experiment, unique_tasks
from torchlace.experiments.later import embedded
from torchlace.runs import load_run

GRID = """
seeds: 1
first_seed: 7
settings: {data: "digits:4@{seed}", recipe: fast, backbone: small-cnn, lr: 0.05, epochs: 2}
columns:
  average: {score: "later.SIZE.{space}.average"}
  last: {score: "later.SIZE.{space}.last"}
rows:
  nearest-mean: {space: nearest-mean}
"""


def reproduce(folder, *options):
    said = inside.torchlace("reproduce", "mine.yaml", "--device", "cpu", *options, folder=folder)
    assert said.code == 0, said.err


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A network of four digits, told the others four at a time."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "mine.yaml").write_text(GRID.replace("SIZE", "4"))
    reproduce(folder, "--runs", "runs")
    return folder


def the_run(folder):
    (run,) = [path for path in (folder / "runs").iterdir() if path.is_dir()]
    return run


def later(run):
    return json.loads((run / "later.json").read_text())["scores"]


def test_classes_are_numbered_in_the_order_of_their_seed():
    whole, some = load_data("digits"), load_data("digits:4@7")
    order = np.random.RandomState(7).permutation(10)
    assert some.class_names == tuple(str(label) for label in order[:4])
    for number, label in enumerate(order[:4]):
        mine = some.test.images[some.test.labels == number]
        assert mine.equal(whole.test.images[whole.test.labels == label])
    assert set(some.train.labels.tolist()) == {0, 1, 2, 3}
    assert some.digest not in (whole.digest, load_data("digits:4@8").digest)


@pytest.mark.parametrize("count", [1, 11])
def test_a_number_of_classes_that_there_is_not_is_an_error(count):
    with pytest.raises(
        DataError, match=f"digits has 10 classes: name 2 to 10 of them, got {count}"
    ):
        load_data(f"digits:{count}@7")


def test_the_seed_of_a_run_is_the_order_of_its_classes(place):
    experiment = load_experiment(place / "mine.yaml").select(seeds=2)
    found = [task.config for task in unique_tasks(experiment.cells())]
    assert [(config.data, config.seed) for config in found] == [
        ("digits:4@7", 7),
        ("digits:4@8", 8),
    ]
    chosen = experiment.select(datasets=["digits:4@8"]).cells()
    assert {cell.task.config.seed for cell in chosen} == {8}


def test_accuracies_are_those_of_a_classifier_of_all_samples_so_far(place):
    given = embedded(load_run(the_run(place), "cpu"))
    expected = []
    for classes in (4, 8, 10):
        train, test = given.labels < classes, given.test_labels < classes
        model = NearestCentroid().fit(given.train[train], given.labels[train])
        expected.append(100 * model.score(given.test[test], given.test_labels[test]))
    found = later(the_run(place))["4"]["nearest-mean"]
    assert found["each"] == pytest.approx(expected, abs=0.3)  # of 359 images one is a tie
    assert found["average"] == pytest.approx(np.mean(found["each"]), abs=1e-3)
    assert found["last"] == found["each"][-1]


def test_another_learner_takes_what_is_trained(place):
    run = the_run(place)
    before, weights = later(run)["4"]["nearest-mean"], (run / "best.safetensors").read_bytes()
    grid = place / "mine.yaml"
    grid.write_text(grid.read_text() + "  lda: {space: lda}\n")
    reproduce(place, "--runs", "runs", "--out", "table.csv")
    assert (run / "best.safetensors").read_bytes() == weights
    assert later(run)["4"]["nearest-mean"] == before
    given = embedded(load_run(run, "cpu"))
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    right = model.fit(given.train, given.labels).score(given.test, given.test_labels)
    assert later(run)["4"]["lda"]["last"] == pytest.approx(100 * right, abs=1e-3)
    reproduce(place, "--runs", "runs", "--show", "--out", "lines.jsonl")
    (line,) = map(json.loads, (place / "lines.jsonl").read_text().splitlines())
    assert line["later"] == later(run)
    reproduce(place, "--results", "lines.jsonl", "--missing", "--runs", "none")
    assert not (place / "none").exists()
    # A line that lacks a learner is not all there is to know.
    del line["later"]["4"]["lda"]
    (place / "lines.jsonl").write_text(json.dumps(line) + "\n")
    options = ("--results", "lines.jsonl", "--missing", "--runs", "none", "--dry-run")
    said = inside.torchlace("reproduce", "mine.yaml", *options, folder=place)
    assert said.code == 0, said.err
    assert line["run"] in said.out


@pytest.mark.parametrize(
    ("score", "says"),
    [
        ("later.0.lace.last", "classes at a time must be at least 1, got 0"),
        ("later.4.lase.last", "learner 'lase': did you mean 'lace'"),
        ("later.4.lace.least", "did you mean 'last'"),
    ],
)
def test_a_score_that_no_line_can_hold_is_refused(score, says, tmp_path):
    grid = tmp_path / "mine.yaml"
    grid.write_text(GRID.replace("later.SIZE.{space}.last", score).replace("SIZE", "4"))
    with pytest.raises(ValueError, match=says):
        load_experiment(grid)
