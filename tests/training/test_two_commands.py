"""Two commands on one folder: one of them trains there, the other says why it doesn't."""

import shutil
from pathlib import Path

import pytest
from training.processes import outcome
from training.stopping import StopAfter, StoppedError

from torchlace.runs import Lock
from torchlace.runs.files import LOCK
from torchlace.training import RunError, Silent, TrainConfig, loop, train

FIRST, SECOND = TrainConfig(epochs=2, seed=3), TrainConfig(epochs=2, seed=4)


@pytest.fixture
def meanwhile(monkeypatch):
    """Let something happen once, just before a function of the loop is called."""

    def set_up(name, work):
        whole = getattr(loop, name)

        def interrupted(*arguments, **options):
            monkeypatch.setattr(loop, name, whole)
            work()
            return whole(*arguments, **options)

        monkeypatch.setattr(loop, name, interrupted)

    return set_up


@pytest.mark.parametrize("whole", [True, False])
def test_settings_are_compared_again_once_the_folder_is_ours(whole, tmp_path, meanwhile):
    """The other command begins after the settings were compared, and before the lock is taken."""
    run = tmp_path / "run"

    def other():
        if whole:
            train(FIRST, run)
        else:
            with pytest.raises(StoppedError):
                train(FIRST, run, reporter=StopAfter(1))

    meanwhile("make_fabric", other)
    with pytest.raises(RunError, match=r"was started with other settings \(seed: 3 → 4\)"):
        train(SECOND, run)
    train(FIRST, run)
    train(FIRST, tmp_path / "alone")
    assert outcome(run) == outcome(tmp_path / "alone")


def test_the_folder_is_ours_before_the_data_are_read(tmp_path, meanwhile):
    run, said = tmp_path / "run", []

    def other():
        with pytest.raises(RunError, match="another process trains in") as error:
            train(SECOND, run)
        said.append(error)

    meanwhile("Inputs", other)
    train(FIRST, run)
    assert said
    train(FIRST, tmp_path / "alone")
    assert outcome(run) == outcome(tmp_path / "alone")


def test_the_same_command_that_comes_second_finds_the_run_finished(tmp_path, meanwhile):
    results = []
    meanwhile("make_fabric", lambda: results.append(train(FIRST, tmp_path / "run")))
    assert train(FIRST, tmp_path / "run") == results[0]


def test_what_could_not_begin_leaves_no_folder_and_no_lock(tmp_path):
    with pytest.raises(ValueError, match="nowhere"):
        train(TrainConfig(data="nowhere"), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_file_was_removed_is_taken_anew(tmp_path):
    first, second = (Lock(tmp_path / "run", LOCK) for _ in range(2))
    assert first.acquire()
    assert not second.acquire()
    first.remove()
    assert not (tmp_path / "run").exists()
    assert second.acquire()
    assert second.there
    second.path.unlink()
    assert not second.there
    assert first.acquire()
    assert first.there
    assert not second.there


class Meddler(Silent):
    """Does something to a run after its first epoch."""

    def __init__(self, work):
        self.work = work

    def epoch(self, row, epochs):
        if row["epoch"] == 1:
            self.work()


def replaced(run):
    shutil.rmtree(run)
    train(SECOND, run)


@pytest.mark.parametrize(
    ("meddle", "message"),
    [
        (shutil.rmtree, "config.yaml is gone"),
        (lambda run: (run / "config.yaml").unlink(), "config.yaml is gone"),
        (replaced, "was removed while the run trained there, and is another one now"),
    ],
)
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_that_is_taken_away_meanwhile_is_an_error(meddle, message, epochs, tmp_path):
    run = tmp_path / "run"
    config = TrainConfig(epochs=epochs, seed=3)
    with pytest.raises(RunError, match=message):
        train(config, run, reporter=Meddler(lambda: meddle(run)))
    if meddle is replaced:
        train(SECOND, tmp_path / "alone")
        assert outcome(run) == outcome(tmp_path / "alone")
    else:
        assert not (run / "result.json").exists()


@pytest.mark.parametrize("left", ["last.ckpt", "result.json"])
def test_a_run_without_its_settings_does_not_go_on(left, tmp_path):
    train(FIRST, tmp_path / "whole")
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(tmp_path / "whole" / left, run)
    before = Path(run / left).read_bytes()
    with pytest.raises(
        RunError, match=r"config\.yaml is gone.*replace this one with overwrite=True"
    ):
        train(FIRST, run)
    assert (run / left).read_bytes() == before
    train(FIRST, run, overwrite=True)
    assert outcome(run) == outcome(tmp_path / "whole")
