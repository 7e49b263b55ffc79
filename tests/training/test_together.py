"""Several processes that start, fail and end together."""

import json
import os
import signal
import time
import warnings

import pytest
from training.processes import fresh, ranks, torchlace

from torchlace.training import RunError
from torchlace.training.step import EagerStep

TRAIN = ("train", "--head", "softmax", "--epochs", "2", "--batch-size", "64", "--run", "run")


class At:
    """In the middle of the first epoch each process does what its entry says."""

    def __init__(self, *actions):
        self.actions = actions

    def __call__(self):
        plain, steps = EagerStep.__call__, []

        def step(training, images, targets):
            steps.append(1)
            if len(steps) == 12:
                self.actions[training.fabric.global_rank]()
            return plain(training, images, targets)

        EagerStep.__call__ = step


def fail():
    raise RunError("the disk is gone")


def go_on():
    pass


def be_busy():
    time.sleep(1000)


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def warn():
    warnings.warn("look", UserWarning, stacklevel=1)


@pytest.mark.parametrize(
    "actions",
    [(fail, go_on), (go_on, fail), (fail, fail), (fail, be_busy), (be_busy, fail)],
    ids=lambda actions: "-".join(action.__name__ for action in actions),
)
def test_one_failure_is_one_line_and_the_end_of_all(actions, tmp_path):
    done = ranks(*TRAIN, folders=[tmp_path] * 2, patch=At(*actions))
    assert [each.code for each in done] == [1, 1]
    assert sorted(each.told for each in done) == ["", "error: the disk is gone\n"]
    assert [each.out for each in done] == ["", ""]


def test_a_killed_process_takes_the_others_along(tmp_path):
    first, second = ranks(*TRAIN, folders=[tmp_path] * 2, patch=At(go_on, be_killed))
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    assert first.told.startswith("error: another process of this run has ended without a word")
    assert first.told.count("\n") == 1


def test_what_the_launcher_starts_fails_with_it(tmp_path):
    options = ("--device", "cpu", "--devices", "2", "--data", "nowhere.npz")
    done = fresh(*TRAIN, *options, folder=tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_only_the_first_process_tells_and_warns(tmp_path):
    first, second = ranks(*TRAIN, "--json", folders=[tmp_path] * 2, patch=At(warn, warn))
    assert (first.code, second.code) == (0, 0)
    assert first.err.count("UserWarning: look") == 1
    assert json.loads(first.out)["epochs"] == 2
    assert second.out == second.err == ""


def test_processes_that_do_not_share_the_folder_are_told(tmp_path):
    folders = [tmp_path / "here", tmp_path / "there"]
    done = ranks(*TRAIN, folders=folders)
    assert [each.code for each in done] == [1, 1]
    told = "".join(each.err for each in done)
    assert told.count("\n") == 1
    assert told.startswith(f"error: {tmp_path}")
    assert "run is not the same folder for all 2 processes: 1 of them" in told
    assert not any((folder / "run").exists() for folder in folders)


def test_processes_that_do_not_share_a_run_that_began_are_told(tmp_path):
    """The first process would resume, the second begin."""
    folders = [tmp_path / "here", tmp_path / "there"]
    begun = torchlace(*TRAIN, "--device", "cpu", folder=folders[0], patch=At(fail))
    assert begun.code == 1
    before = sorted(path.name for path in (folders[0] / "run").iterdir())
    done = ranks(*TRAIN, folders=folders)
    assert [each.code for each in done] == [1, 1]
    assert "is not the same folder" in "".join(each.err for each in done)
    assert sorted(path.name for path in (folders[0] / "run").iterdir()) == before


def test_a_finished_run_is_left_alone_and_said_to_be_once(tmp_path):
    assert torchlace(*TRAIN, "--device", "cpu", folder=tmp_path).code == 0
    first, second = ranks(*TRAIN, folders=[tmp_path] * 2)
    assert (first.code, second.code) == (0, 0)
    assert first.err == "run is finished already; --overwrite trains it anew\n"
    assert "test accuracy" in first.out
    assert second.out == second.err == ""
