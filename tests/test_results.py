import base64
import json
from pathlib import Path

import numpy as np
import pytest

from torchlace.data import KNOWN
from torchlace.experiments.cells import canonical, run_name
from torchlace.training import TrainConfig

ALL = [
    json.loads(line)
    for path in sorted((Path(__file__).parents[1] / "results").glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
LINES = [line for line in ALL if line["status"] == "finished"]


def name(line):
    return f"{line['experiment']}-{line['run']}"


def test_what_was_not_finished_says_so_and_claims_nothing():
    for line in ALL:
        if line["status"] != "finished":
            assert line["status"] in ("cut", "failed")
            assert "test_accuracy" not in line
            assert len(line["validation"]["loss"]) == line["epochs"]


@pytest.mark.parametrize("line", LINES, ids=name)
def test_accuracy_follows_from_the_images_that_were_right(line):
    bits = np.unpackbits(np.frombuffer(base64.b64decode(line["test_right"]), np.uint8))
    right = bits[: line["test_images"]]
    assert len(right) == line["test_images"]
    assert 100 * right.mean() == pytest.approx(line["test_accuracy"], abs=1e-9)


@pytest.mark.parametrize("line", LINES, ids=name)
def test_the_curve_leads_to_the_chosen_epoch(line):
    accuracy, loss = line["validation"]["accuracy"], line["validation"]["loss"]
    assert len(accuracy) == len(loss) == line["epochs"]
    # The highest accuracy, and of equal ones the lowest loss.
    assert int(np.lexsort((loss, -np.array(accuracy)))[0]) + 1 == line["best_epoch"]
    # A resumed run chooses its bf16 kernels anew, and some images lie between two classes.
    assert max(accuracy) == pytest.approx(line["val_accuracy"], abs=0.1)
    patience = line["config"]["patience"]
    # Never more epochs in a row without a lower loss, and not fewer at the end.
    lowest = np.minimum.accumulate(loss)
    stale, longest = 0, 0
    for epoch in range(1, len(loss)):
        stale = 0 if loss[epoch] < lowest[epoch - 1] else stale + 1
        longest = max(longest, stale)
    assert longest <= patience
    assert line["epochs"] in (int(np.argmin(loss)) + 1 + patience, line["config"]["epochs"])


@pytest.mark.parametrize("line", LINES, ids=name)
def test_the_configuration_runs_it_again(line):
    config = TrainConfig.from_dict(line["config"])
    assert (config.data, config.head, config.seed) == (line["dataset"], line["head"], line["seed"])
    assert run_name(canonical(config)) == line["run"]


@pytest.mark.parametrize("line", LINES, ids=name)
def test_the_images_are_the_official_ones(line):
    known = KNOWN[line["dataset"]]
    assert line["data_digest"] in known.digests
    assert line["test_images"] == known.test


def test_rows_of_a_table_share_their_protocol():
    for table in {(line["experiment"], line["protocol"]) for line in LINES}:
        rows = [line["config"] for line in LINES if (line["experiment"], line["protocol"]) == table]
        for setting in ("epochs", "patience", "batch_size", "optimizer", "lr"):
            assert len({row[setting] for row in rows}) == 1


def test_no_run_is_listed_twice():
    assert len({name(line) for line in LINES}) == len(LINES) > 0
