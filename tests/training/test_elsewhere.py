"""Runs that go on, or are looked at, on another machine than where they began."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from training.stopping import StopAfter, StoppedError

from torchlace.cli.common import load_run
from torchlace.training import RunError, TrainConfig, train
from torchlace.training.checkpoint import load_checkpoint, save_checkpoint
from torchlace.training.rundir import Run


def optimizer(lr=1e-3, **options):
    model = torch.nn.Linear(2, 2)
    return torch.optim.Adam(model.parameters(), lr=lr, **options)


def test_how_the_optimizer_computes_is_not_taken_from_the_checkpoint(tmp_path):
    run = Run(tmp_path)
    graph = optimizer(torch.tensor(0.5), capturable=True)
    save_checkpoint(run, {"optimizer": graph}, {})
    plain = optimizer(1e-3)
    load_checkpoint(run, {"optimizer": plain}, torch.device("cpu"))
    assert plain.param_groups[0]["capturable"] is False
    assert plain.param_groups[0]["lr"] == 0.5
    assert isinstance(plain.param_groups[0]["lr"], float)

    save_checkpoint(run, {"optimizer": plain}, {})
    back = optimizer(torch.tensor(1e-3), capturable=True)
    load_checkpoint(run, {"optimizer": back}, torch.device("cpu"))
    assert back.param_groups[0]["capturable"] is True
    assert isinstance(back.param_groups[0]["lr"], torch.Tensor)
    assert back.param_groups[0]["lr"] == 0.5


def test_strategies_that_can_not_be_are_refused(tmp_path):
    with pytest.raises(RunError, match="use fsdp"):
        train(TrainConfig(strategy="deepspeed"), tmp_path)
    with pytest.raises(RunError, match="--strategy ddp"):
        train(TrainConfig(strategy="fsdp", ema=0.9, device="cpu"), tmp_path)


def test_the_average_counts_the_steps_of_the_model(tmp_path):
    train(TrainConfig(epochs=2, ema=0.9, batch_size=64), tmp_path)
    steps = load_file(tmp_path / "best.safetensors")["head.background._extra_state"]
    assert int(steps) in (20, 40)


def test_pretrained_weights_are_fetched_once(tmp_path, monkeypatch):
    asked = []
    import torchlace.training.loop as loop
    from torchlace.training.parts import make_classifier

    def remember(config, *arguments):
        asked.append(config.pretrained)
        return make_classifier(dataclasses.replace(config, pretrained=False), *arguments)

    monkeypatch.setattr(loop, "make_classifier", remember)
    config = TrainConfig(epochs=2, pretrained=True)
    with pytest.raises(StoppedError):
        train(config, tmp_path, reporter=StopAfter(1))
    train(config, tmp_path)
    assert asked == [True, False]
    load_run(tmp_path, "cpu")
