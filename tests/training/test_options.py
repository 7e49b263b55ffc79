import itertools

import pytest
import torch
from training.processes import metrics, outcome
from training.stopping import StopAfter, StoppedError, StopWithin

from torchlace.data import load_data, stratified_split
from torchlace.models import Classifier
from torchlace.training import TrainConfig, make_classifier, train

OPTIMIZERS = ("adam", "adamw", "sgd", "muon")
SCHEDULES = ("constant", "cosine", "one-cycle")


@pytest.mark.parametrize(("optimizer", "schedule"), list(itertools.product(OPTIMIZERS, SCHEDULES)))
def test_every_optimizer_and_schedule_resumes(optimizer, schedule, tmp_path):
    config = TrainConfig(
        epochs=3, optimizer=optimizer, schedule=schedule, weight_decay=1e-2, batch_size=128
    )
    train(config, tmp_path / "calm")
    with pytest.raises(StoppedError):
        train(config, tmp_path / "stopped", reporter=StopAfter(1))
    with pytest.raises(StoppedError):
        train(config, tmp_path / "stopped", reporter=StopWithin(3))
    train(config, tmp_path / "stopped")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "calm")


def test_schedules_end_where_they_should(tmp_path):
    rates = {}
    for schedule in SCHEDULES:
        config = TrainConfig(epochs=4, schedule=schedule, lr=0.01)
        train(config, tmp_path / schedule)
        rates[schedule] = [float(row["lr"]) for row in metrics(tmp_path / schedule)]
    assert rates["constant"] == [0.01] * 4
    assert rates["cosine"] == sorted(rates["cosine"], reverse=True)
    assert rates["cosine"][-1] == pytest.approx(0, abs=1e-9)
    assert max(rates["one-cycle"]) > 0.008
    assert rates["one-cycle"][-1] < 1e-6


def test_weight_decay_label_smoothing_and_class_weights_change_what_is_learned(tmp_path):
    plain = {"epochs": 1, "head": "softmax"}
    changes = [
        {},
        {"weight_decay": 0.1},
        {"label_smoothing": 0.2},
        {"class_weights": "balanced"},
        {"clip": 0.01, "optimizer": "sgd"},
        {"optimizer": "sgd"},
        {"ema": 0.5},
        {"embedding": 16},
        {"background_norm": "layers.5"},
        {"mirror": True},
    ]
    losses = [
        train(TrainConfig(**plain, **change), tmp_path / str(number))["test_loss"]
        for number, change in enumerate(changes)
    ]
    assert len(set(losses)) == len(changes)


def test_no_mirror_is_what_digits_do_by_themselves(tmp_path):
    losses = [
        train(TrainConfig(epochs=1, mirror=mirror), tmp_path / str(mirror))["test_loss"]
        for mirror in (None, False)
    ]
    assert losses[0] == losses[1]


def test_balanced_weights_are_inverse_frequencies(tmp_path, monkeypatch):
    seen, sound = [], Classifier.loss

    def look(self, images, targets, **options):
        seen.append(options)
        return sound(self, images, targets, **options)

    monkeypatch.setattr(Classifier, "loss", look)
    train(TrainConfig(epochs=1, class_weights="balanced", label_smoothing=0.1), tmp_path)
    labels = load_data("digits").train.labels
    counts = labels[stratified_split(labels, 0.1, 0)[0]].bincount()
    torch.testing.assert_close(seen[0]["weight"], counts.sum() / (10 * counts))
    assert seen[0]["label_smoothing"] == 0.1


def test_the_average_follows_the_weights_and_copies_the_statistics(tmp_path):
    config = TrainConfig(epochs=2, ema=0.8)
    train(config, tmp_path)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    model = make_classifier(config, 1, 8, 10)
    buffers = [name for name, _ in model.named_buffers()]
    weights = [name for name, _ in model.named_parameters()]
    assert buffers
    for name in buffers:
        assert torch.equal(state["average"][name], state["model"][name]), name
    for name in weights:
        assert not torch.equal(state["average"][name], state["model"][name]), name


def test_it_stops_when_the_validation_loss_no_longer_falls_and_keeps_the_best_epoch(tmp_path):
    config = TrainConfig(epochs=60, patience=3, head="softmax", lr=0.03)
    result = train(config, tmp_path)
    losses = [float(row["val_loss"]) for row in metrics(tmp_path)]
    assert result["epochs"] == len(losses) == losses.index(min(losses)) + 1 + 3 < 60
    for done in range(1, len(losses)):
        assert done - (losses[:done].index(min(losses[:done])) + 1) < 3
    accuracies = [float(row["val_accuracy"]) for row in metrics(tmp_path)]
    assert result["val_accuracy"] == max(accuracies)
    assert result["best_epoch"] == accuracies.index(max(accuracies)) + 1 < len(accuracies)


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true", "bf16-true"])
def test_precisions_of_fabric(precision, tmp_path):
    config = TrainConfig(epochs=4, batch_size=64, head="softmax", precision=precision)
    assert train(config, tmp_path)["test_accuracy"] > 60


def test_mixed_precision_reaches_the_training_step(tmp_path, monkeypatch):
    inside, sound = set(), Classifier.loss

    def look(self, *arguments, **options):
        inside.add(torch.is_autocast_enabled("cpu"))
        return sound(self, *arguments, **options)

    monkeypatch.setattr(Classifier, "loss", look)
    train(TrainConfig(epochs=1, precision="bf16-mixed"), tmp_path)
    assert inside == {True}


def test_seeds_differ_and_repeat(tmp_path):
    runs = {name: tmp_path / name for name in ("first", "again", "other")}
    for name, run in runs.items():
        train(TrainConfig(epochs=1, seed=int(name == "other")), run)
    assert outcome(runs["first"]) == outcome(runs["again"])
    assert metrics(runs["first"]) != metrics(runs["other"])
