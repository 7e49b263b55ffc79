import csv
import math

import pytest
import yaml
from safetensors.torch import load_file

from torchlace import heads
from torchlace.training import Run, TrainConfig, make_classifier, train

RESULT = {
    *("test_accuracy", "test_top5_accuracy", "test_loss", "test_calibrated_loss", "val_accuracy"),
    *("temperature", "epochs", "best_epoch", "seconds", "parameters", "device", "graph"),
    *("ece", "calibrated_ece"),
    *("peak_memory_mib", "test_images", "test_right", "data_digest", "versions"),
}


@pytest.mark.parametrize("head", heads.names())
def test_a_short_run_leaves_a_complete_directory(head, tmp_path):
    run = Run(tmp_path / head)
    config = TrainConfig(head=head, epochs=2, batch_size=64)
    result = train(config, run.path)
    assert run.result() == result
    assert result.keys() == RESULT
    numbers = [value for value in result.values() if isinstance(value, float)]
    assert all(map(math.isfinite, numbers))
    assert result["test_accuracy"] > 40
    assert result["test_calibrated_loss"] < math.log(10)

    rows = run.history()
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(math.isfinite(value) for row in rows for value in row.values())

    model = make_classifier(config, 1, 8, 10)
    resolved = " ".join(repr(model.head).split())
    model.load_state_dict(load_file(run.weights_path))
    assert float(model.head.temperature) == pytest.approx(result["temperature"])
    assert sum(p.numel() for p in model.parameters()) == result["parameters"]

    assert len(list(run.path.glob("events.out.tfevents.*"))) == 1
    facts = yaml.safe_load(run.config_path.read_text())["run"]
    assert facts["class_names"] == list("0123456789")
    assert facts["data_digest"] == result["data_digest"]
    assert facts["head"] == resolved


def test_what_tensorboard_shows_is_what_the_table_says(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(TrainConfig(epochs=3), tmp_path)
    events = EventAccumulator(str(tmp_path)).Reload()
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    for name in ("train_loss", "val_loss", "val_accuracy", "lr"):
        shown = [(event.step, event.value) for event in events.Scalars(name)]
        assert shown == [(int(row["epoch"]), pytest.approx(float(row[name]))) for row in rows]


def test_options_of_the_head_reach_it(tmp_path):
    config = TrainConfig(head="arcface", head_options={"margin": 0.05, "scale": 12.0}, epochs=1)
    train(config, tmp_path)
    head = make_classifier(Run(tmp_path).config(), 1, 8, 10).head
    assert (head.margin, float(head.scale)) == (0.05, 12.0)


def test_lace_learns_the_digits(tmp_path):
    result = train(TrainConfig(epochs=40, batch_size=64, lr=2e-3), tmp_path)
    assert result["test_accuracy"] >= 97
    assert result["test_calibrated_loss"] < result["test_loss"]
