"""Statistics of batch normalisation, taken anew before validation."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training.processes import fresh, metrics, outcome, torchlace
from training.stopping import StopAfter, StoppedError

from torchlace.training import Run, TrainConfig, train
from torchlace.training.distributed import OneDevice
from torchlace.training.scoring import Scoring

NETWORK = {"backbone": "shufflenet_v2_x0_5", "batch_size": 256}


class Fitting:
    def __init__(self, images):
        self.images = images

    def training(self, order):
        for chosen in order:
            yield self.images[chosen], None


@pytest.mark.parametrize("training", [True, False])
def test_statistics_are_those_of_the_batches_and_of_the_weights_as_they_are(training):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4, momentum=0.3)
    model = nn.Module()
    model.backbone = nn.Sequential(nn.Conv2d(1, 4, 3), norm).train(training)
    norm.running_mean.fill_(7)
    images = torch.randn(30, 1, 6, 6)
    inputs = SimpleNamespace(fit=Fitting(images), augment=lambda batch, labels: (2 * batch, labels))
    scoring = Scoring(inputs, OneDevice(torch.device("cpu"), "32-true"), compiled=False)
    order = torch.arange(30).view(3, 10)
    scoring.settle(model, order)

    with torch.no_grad():
        out = model.backbone[0].double()(2 * images.double())
    batches = [out[chosen].transpose(0, 1).flatten(1) for chosen in order]
    mean = torch.stack([batch.mean(1) for batch in batches]).mean(0)
    variance = torch.stack([batch.var(1) for batch in batches]).mean(0)
    torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-5, atol=1e-6)
    assert norm.momentum == 0.3
    assert norm.training is training


CONFIG = TrainConfig(**NETWORK, epochs=3, norm_batches=2)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calm")
    train(CONFIG, folder)
    return folder


def test_training_is_the_same_and_validation_is_not(calm, tmp_path):
    train(TrainConfig(**NETWORK, epochs=2), tmp_path)
    rows = [metrics(tmp_path), metrics(calm)[:2]]
    trained = [[row["train_loss"] for row in each] for each in rows]
    assert trained[0] == trained[1]
    losses = np.array([[float(row["val_loss"]) for row in each] for each in rows])
    assert (losses[0] != losses[1]).all()


def kept_as_validated(folder):
    result = Run(folder).result()
    best = metrics(folder)[result["best_epoch"] - 1]
    assert result["val_accuracy"] == pytest.approx(float(best["val_accuracy"]))
    weights = load_file(folder / "best.safetensors")
    counts = {int(value) for name, value in weights.items() if name.endswith("batches_tracked")}
    assert counts == {2}


def test_what_is_kept_is_what_was_validated(calm, tmp_path):
    kept_as_validated(calm)
    train(TrainConfig(**NETWORK, epochs=2, norm_batches=2, ema=0.5), tmp_path)
    kept_as_validated(tmp_path)


def test_a_run_goes_on_as_if_it_had_not_been_stopped(calm, tmp_path):
    with pytest.raises(StoppedError):
        train(CONFIG, tmp_path, reporter=StopAfter(1))
    train(CONFIG, tmp_path)
    assert outcome(tmp_path) == outcome(calm)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "small-cnn has no batch normalisation: leave out --norm-batches"),
        (("--background-norm", "layers.5"), "a BackgroundNorm would learn from the batches of"),
        (("--norm-batches", "-1"), "norm_batches must be"),
    ],
)
def test_where_there_is_nothing_to_take(options, message, tmp_path):
    command = ("train", "--run", "run", "--norm-batches", "3", *options)
    done = torchlace(*command, folder=tmp_path)
    assert done.code == 1
    assert message in done.err
    assert not (tmp_path / "run").exists()


def test_sharded_networks_are_refused(tmp_path):
    command = ("train", "--run", "run", "--norm-batches", "3", "--backbone", "resnet18")
    sharded = ("--strategy", "fsdp", "--devices", "1", "--device", "cpu")
    done = torchlace(*command, *sharded, folder=tmp_path)
    assert done.code == 1
    assert "--norm-batches needs the whole model on every device" in done.err


def test_two_processes_each_take_their_share(tmp_path):
    command = ("train", "--run", "run", "--norm-batches", "3", "--epochs", "1", "--json")
    two = ("--strategy", "ddp", "--devices", "2", "--device", "cpu")
    network = ("--backbone", "shufflenet_v2_x0_5", "--batch-size", "256")
    done = fresh(*command, *two, *network, folder=tmp_path)
    assert done.code == 0, done.err
    weights = load_file(tmp_path / "run" / "best.safetensors")
    assert {int(v) for name, v in weights.items() if name.endswith("batches_tracked")} == {3}
