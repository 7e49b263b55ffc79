"""Files that appear whole or not at all, whoever writes them."""

import errno
import os

import numpy as np
import pytest

from torchlace import _files
from torchlace.data import DataError, packs
from torchlace.experiments.ray import place_files
from torchlace.runs import write_whole
from torchlace.training import RunError, TrainConfig, train

WRITERS = [_files.write_whole, write_whole]


def refuse(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("write", WRITERS)
def test_two_processes_that_write_the_same_file_do_not_mix(write, tmp_path, monkeypatch):
    path = tmp_path / "a"

    def meanwhile(file):
        file.write(b"first ")
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: 2**30)
            write(path, lambda other: other.write(b"of another"))
        assert path.read_bytes() == b"of another"
        file.write(b"and second half")

    write(path, meanwhile)
    assert path.read_bytes() == b"first and second half"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_interrupts_writing_passes_and_leaves_what_was_there(write, error, tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def stop(file):
        file.write(b"half")
        raise error

    with pytest.raises(error):
        write(tmp_path / "a", stop)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_everybody_says_the_same_of_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", refuse)
    x = np.zeros((4, 8, 8), np.uint8)
    said = []
    for write, kind in (
        (lambda path: _files.write_whole(path, lambda file: None), OSError),
        (lambda path: write_whole(path, lambda file: None), RunError),
        (lambda path: packs.write_pack(path, {"x_train": x}), DataError),
        (lambda path: place_files({path.name: b"{}"}, path.parent), OSError),
    ):
        with pytest.raises(kind) as raised:
            write(tmp_path / "result.json")
        assert raised.value.__cause__.errno == errno.ENOSPC
        said.append(str(raised.value))
    assert said == [
        f"{tmp_path / 'result.json'} could not be written (No space left on device); what was "
        "there before is intact. Make room or choose another place, then start the same command "
        "again"
    ] * len(said)
    assert names(tmp_path) == []


def test_an_error_without_a_number_is_told_by_its_text(tmp_path):
    def odd(file):
        raise OSError("encoder error -2")

    with pytest.raises(RunError, match=r"could not be written \(encoder error -2\)"):
        write_whole(tmp_path / "a", odd)


def test_folders_are_made_where_that_is_wanted_only(tmp_path):
    path = tmp_path / "one" / "two" / "a"
    with pytest.raises(OSError, match="No such file or directory"):
        _files.write_whole(path, lambda file: None)
    assert names(tmp_path) == []
    _files.write_whole(path, lambda file: file.write(b"a"), folders=True)
    assert path.read_bytes() == b"a"
    with pytest.raises(OSError, match=r"b could not be written \(Not a directory|File exists\)"):
        _files.write_whole(path / "b", lambda file: None, folders=True)


@pytest.mark.parametrize("write", WRITERS)
def test_what_is_no_file_is_left_in_its_place(write, tmp_path):
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").symlink_to("a")  # as /dev/stdout is
    for name in ("a", "b"):
        with pytest.raises((OSError, RunError), match=f"{name} is a device or a pipe and can't"):
            write(tmp_path / name, lambda file: file.write(b"whole"))
    assert (tmp_path / "a").is_fifo()
    assert (tmp_path / "b").is_symlink()
    assert names(tmp_path) == ["a", "b"]


def test_a_run_that_goes_on_removes_what_kills_left_of_its_own_files(tmp_path):
    left = (".last.ckpt.77.part", ".best.safetensors.78.part", ".evaluation.json.79.part", ".lock")
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    train(TrainConfig(epochs=1), tmp_path)
    assert [name for name in names(tmp_path) if name.endswith(".part")] == [left[2]]
