"""Checkpoints written while training goes on."""

import threading
import time

import pytest
import torch
from training.processes import outcome
from training.stopping import StoppedError, StopWithin

import torchlace.training.loop as loop
from torchlace.training import RunError, Silent, TrainConfig, train
from torchlace.training.checkpoint import Writer


def test_work_is_done_in_order_and_not_at_once():
    done, gate = [], threading.Event()
    with Writer(background=True) as writer:
        writer.write(lambda: done.append(gate.wait(10)))
        assert done == []
        gate.set()
        writer.write(lambda: done.append("second"))
        assert done[0] is True
        writer.wait()
        assert done == [True, "second"]


def test_errors_come_up_where_they_are_waited_for():
    def fail():
        raise RunError("no room")

    writer = Writer(background=True)
    writer.write(fail)
    with pytest.raises(RunError, match="no room"):
        writer.write(lambda: None)
    with pytest.raises(RunError, match="no room"), Writer(background=True) as writer:
        writer.write(fail)
    first, writer = KeyError("first"), Writer(background=True)
    writer.write(fail)
    writer.__exit__(KeyError, first, None)
    assert first.__notes__ == ["no room"]


@pytest.fixture
def _slow(monkeypatch):
    """Every checkpoint is written in the background, after the next epoch has begun."""

    class Slow(Writer):
        def __init__(self, *, background):
            super().__init__(background=True)

        def write(self, work):
            def late():
                time.sleep(0.3)
                work()

            super().write(late)

    monkeypatch.setattr(loop, "Writer", Slow)


@pytest.mark.usefixtures("_slow")
def test_what_is_written_late_is_of_the_epoch_it_belongs_to(tmp_path, monkeypatch):
    config = TrainConfig(epochs=4, ema=0.9, schedule="cosine")
    with pytest.raises(StoppedError):
        train(config, tmp_path / "stopped", reporter=StopWithin(3))
    state = torch.load(tmp_path / "stopped" / "last.ckpt", weights_only=True)
    assert len(state["progress"]["history"]) == 2
    train(config, tmp_path / "stopped")
    monkeypatch.setattr(loop, "Writer", Writer)
    train(config, tmp_path / "calm")
    assert outcome(tmp_path / "stopped") == outcome(tmp_path / "calm")


@pytest.mark.usefixtures("_slow")
def test_a_disk_that_fills_ends_the_run_and_keeps_what_was_there(tmp_path, monkeypatch):
    whole = loop.write_checkpoint

    def full(run, state):
        if len(state["progress"]["history"]) == 2:
            raise RunError("no room")
        whole(run, state)

    class Count(Silent):
        epochs = 0

        def epoch(self, row, epochs):
            self.epochs = row["epoch"]

    monkeypatch.setattr(loop, "write_checkpoint", full)
    told = Count()
    with pytest.raises(RunError, match="no room"):
        train(TrainConfig(epochs=6), tmp_path, reporter=told)
    assert told.epochs <= 3
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert len(state["progress"]["history"]) == 1
    assert not (tmp_path / "result.json").exists()
