import errno
import io
import os
import pickle
import resource
from pathlib import Path

import pytest
import torch
from training.processes import metrics, outcome, torchlace
from training.stopping import StopAfter, StoppedError

from torchlace.runs import write_whole
from torchlace.runs.seals import sealed
from torchlace.training import Run, RunError, TrainConfig, train

CONFIG = TrainConfig(epochs=2)
# config; checkpoint, weights, metrics of two epochs; weights with their temperature; result
WRITES = 9


def hidden(run):
    if not run.exists():  # nothing could be written, so nothing is left
        return []
    return [
        path.name for path in run.iterdir() if path.name.startswith(".") and path.name != ".lock"
    ]


class FullAfter:
    """A disk that has room for so many files."""

    def __init__(self, room):
        self.room, self.fsync = room, os.fsync

    def __call__(self, descriptor):
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.fsync(descriptor)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    train(CONFIG, run)
    return outcome(run)


@pytest.mark.parametrize("room", range(WRITES))
def test_a_full_disk_leaves_what_was_there(room, undisturbed, tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", FullAfter(room))
        with pytest.raises(RunError, match=r"No space left on device.*is intact.*same command"):
            train(CONFIG, run)
    assert hidden(run) == []
    if room >= 2:
        done = torch.load(run / "last.ckpt", weights_only=True)["progress"]["history"]
        assert len(done) == min(2, (room + 1) // 3)
    train(CONFIG, run)
    assert outcome(run) == undisturbed


def test_a_checkpoint_that_does_not_fit(tmp_path):
    run = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, before[1]))
    try:
        with pytest.raises(RunError, match=r"last\.ckpt could not be written \(File too large\)"):
            train(CONFIG, run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (run / "last.ckpt").exists()
    assert hidden(run) == []


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "taken").write_text("mine")
    done = torchlace("train", "--epochs", 1, "--run", "taken", folder=tmp_path)
    assert done.code == 1
    assert done.err == "error: taken is a file; --run needs a folder\n"
    below = torchlace("train", "--epochs", 1, "--run", "taken/run", folder=tmp_path)
    assert below.code == 1
    assert below.err == "error: taken/run can't be created: Not a directory\n"
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    whole = Path.open

    def refuse(path, mode="r", **options):
        if path.is_relative_to(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(path, mode, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RunError, match=r"config\.yaml could not be written \(Permission denied\)"):
        train(CONFIG, tmp_path / "run")


def test_a_file_system_that_may_only_be_read_is_named(tmp_path, monkeypatch):
    def refuse(path, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)  # it says so even of a file that is not there
    with pytest.raises(RunError, match=r"a could not be written \(Read-only file system\)"):
        write_whole(tmp_path / "a", lambda file: file.write(b""))


@pytest.fixture
def half_done(tmp_path):
    with pytest.raises(StoppedError):
        train(CONFIG, tmp_path / "run", reporter=StopAfter(1))
    return Run(tmp_path / "run")


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(damage, half_done):
    whole = half_done.checkpoint_path.read_bytes()
    damaged = {"cut": whole[: len(whole) // 2], "empty": b"", "text": b"hello"}[damage]
    half_done.checkpoint_path.write_bytes(damaged)
    with pytest.raises(RunError, match=r"last\.ckpt is damaged .*train\(overwrite=True\) does"):
        train(CONFIG, half_done.path)
    assert half_done.checkpoint_path.read_bytes() == damaged
    train(CONFIG, half_done.path, overwrite=True)
    assert len(metrics(half_done.path)) == 2


class Program:
    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("save", [torch.save, pickle.dump])
def test_a_checkpoint_that_is_a_program_is_not_run(save, half_done, tmp_path):
    content = io.BytesIO()
    save(Program(tmp_path / "trace"), content)
    half_done.checkpoint_path.write_bytes(b"".join(sealed(content.getvalue())))
    with pytest.raises(RunError, match="can't be read") as raised:
        train(CONFIG, half_done.path)
    assert not (tmp_path / "trace").exists()
    assert "\n" not in str(raised.value)


def test_a_checkpoint_of_another_model_is_an_error(half_done, tmp_path):
    other = TrainConfig(epochs=2, embedding=32)
    with pytest.raises(StoppedError):
        train(other, tmp_path / "other", reporter=StopAfter(1))
    half_done.checkpoint_path.write_bytes((tmp_path / "other" / "last.ckpt").read_bytes())
    with pytest.raises(RunError, match="can't be read"):
        train(CONFIG, half_done.path)
