"""A run stopped at any of its writes, as by a kill, and started again."""

import os
from pathlib import Path

import pytest
from training.processes import outcome

from torchlace.training import TrainConfig, train

CONFIG = TrainConfig(epochs=2, ema=0.9, schedule="cosine")
# config; weights, checkpoint, metrics of two epochs; weights with their temperature; result
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


def test_what_a_kill_left_half_written_goes_away(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", CutShort(os.fsync, 3, after=False))
        patch.setattr(os, "getpid", lambda: 2**30)
        with pytest.raises(Killed):
            train(CONFIG, run)
    train(CONFIG, run)
    assert files(run) == FILES
