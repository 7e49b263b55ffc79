"""A run stopped at any of its writes, as by a kill, and started again."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from training.processes import outcome
from training.stopping import Recorder, StoppedError, StopWithin

from torchlace.training import TrainConfig, train

CONFIG = TrainConfig(epochs=2, ema=0.9, schedule="cosine")
# config; checkpoint, weights, metrics of two epochs; weights with their temperature; result
WRITES = 9
FILES = {"config.yaml", "metrics.csv", "last.ckpt", "best.safetensors", "result.json"}


class Killed(BaseException):
    """Passes every `except Exception`, as a kill does."""


class CutShort:
    """Stops at one call of a function: before it or after it."""

    def __init__(self, function, call, after):
        self.function, self.left, self.after = function, call, after

    def __call__(self, *arguments):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        value = self.function(*arguments)
        if self.left == 0:
            raise Killed
        return value


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(CONFIG, run)
    return outcome(run)


def files(run):
    return {
        path.name for path in run.iterdir() if "tfevents" not in path.name and path.name != ".lock"
    }


@pytest.mark.parametrize("call", range(1, WRITES + 1))
@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_it_ends_as_if_nothing_had_happened(call, moment, undisturbed, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut = CutShort(Path.replace, call, after=moment == "after the rename")
        patch.setattr(Path, "replace", lambda path, target: cut(path, target))
        with pytest.raises(Killed):
            train(CONFIG, run)
    train(CONFIG, run)
    assert outcome(run) == undisturbed


class Snapshots(Recorder):
    """The weights to use after every epoch."""

    def __init__(self, run):
        super().__init__()
        self.run, self.weights = run, {}

    def epoch(self, row, epochs):
        self.weights[row["epoch"]] = torch.load(self.run / "last.ckpt", weights_only=True)[
            "average"
        ]


@pytest.mark.parametrize("call", range(2, 8))
def test_the_weights_are_those_of_the_epoch_that_the_checkpoint_names(call, tmp_path, monkeypatch):
    """On a device that rounds differently every time, the epoch done again may be a worse one."""
    known = Snapshots(tmp_path / "whole")
    config = dataclasses.replace(CONFIG, epochs=3)
    train(config, tmp_path / "whole", reporter=known)
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut = CutShort(Path.replace, call, after=True)
        patch.setattr(Path, "replace", lambda path, target: cut(path, target))
        with pytest.raises(Killed):
            train(config, run)
    done = torch.load(run / "last.ckpt", weights_only=True)["progress"]
    with pytest.raises(StoppedError):
        train(config, run, reporter=StopWithin(len(done["history"]) + 1))
    assert_close(load_file(run / "best.safetensors"), dict(known.weights[done["best_epoch"]]))


def test_what_a_kill_left_half_written_goes_away(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", CutShort(os.fsync, 3, after=False))
        patch.setattr(os, "getpid", lambda: 2**30)
        with pytest.raises(Killed):
            train(CONFIG, run)
    train(CONFIG, run)
    assert files(run) == FILES
