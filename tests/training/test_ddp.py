"""Two real processes on the CPU."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from training.processes import PATIENCE, QUIET, machines, metrics, ranks, torchlace

from torchlace.training.step import EagerStep

SHORT = ("train", "--backbone", "small-cnn", "--batch-size", "128", "--seed", "3", "--lr", "3e-4")
TWO = ("--device", "cpu", "--devices", "2", "--strategy", "ddp")
CASES = {
    "lace": ("--ema", "0.9", "--clip", "1", "--schedule", "cosine"),
    "softmax": ("--label-smoothing", "0.1"),
    "adacos": (),
}


def compare(command, folder, strategy="ddp"):
    torchlace(*command, "--json", "--run", "one", folder=folder)
    spread = ("--strategy", strategy, "--json", "--run", "two")
    for two in ranks(*command, *spread, folders=[folder] * 2):
        assert two.code == 0, two.err
    assert_alike(folder)


def assert_alike(folder):
    one, two = (json.loads((folder / name / "result.json").read_text()) for name in ("one", "two"))
    close = {"abs": 1e-4, "rel": 1e-4}
    # an image between two classes may fall to either side
    a_image = {"abs": 1.001 * 100 / 143}
    for name in ("test_loss", "test_calibrated_loss"):
        assert two[name] == pytest.approx(one[name], **close), name
    assert two["test_accuracy"] == pytest.approx(one["test_accuracy"], **a_image)
    rows = zip(metrics(folder / "one"), metrics(folder / "two"), strict=True)
    for number, (mine, theirs) in enumerate(rows, start=1):
        assert mine["epoch"] == theirs["epoch"] == str(number)
        assert float(theirs["val_accuracy"]) == pytest.approx(
            float(mine["val_accuracy"]), **a_image
        )
        for name in ("train_loss", "val_loss", "lr"):
            assert float(theirs[name]) == pytest.approx(float(mine[name]), **close), name


@pytest.mark.parametrize("head", CASES)
def test_two_processes_do_what_one_does(head, tmp_path):
    compare((*SHORT, "--epochs", "3", "--head", head, *CASES[head]), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        ("--head", "lace", "--clip", "1", "--schedule", "one-cycle"),
        ("--head", "center", "--optimizer", "sgd", "--embedding", "24"),
        ("--head", "adacos", "--optimizer", "adamw", "--weight-decay", "0.1"),
        ("--head", "normface", "--head-option", "scale=learned", "--clip", "1"),
    ],
    ids=lambda options: options[1],
)
def test_a_model_spread_over_two_processes_learns_as_a_whole_one(options, tmp_path):
    compare((*SHORT, "--epochs", "3", *options), tmp_path, "fsdp")


def train_on(folder, strategy, *command, patch=None):
    """On one process, or on two by this strategy; what the first one says."""
    if strategy == "whole":
        return torchlace(*command, "--device", "cpu", folder=folder, patch=patch)
    return ranks(*command, "--strategy", strategy, folders=[folder] * 2, patch=patch)[0]


@pytest.mark.parametrize(
    ("first", "then"), [("whole", "ddp"), ("ddp", "whole"), ("whole", "fsdp"), ("fsdp", "whole")]
)
def test_a_run_goes_on_with_another_number_of_processes(first, then, tmp_path):
    command = (*SHORT, "--head", "normface", "--head-option", "scale=learned", "--epochs", "4")
    command = (*command, "--lr", "1e-4", "--schedule", "cosine")
    assert torchlace(*command, "--run", "one", folder=tmp_path).code == 0
    cut = train_on(tmp_path, first, *command, "--run", "two", patch=interrupt_within)
    assert cut.code == 130
    done = train_on(tmp_path, then, *command, "--run", "two")
    assert done.code == 0, done.err
    assert "resuming two after epoch 3\n" in done.err
    assert_alike(tmp_path)


@pytest.mark.parametrize(("first", "then"), [("whole", "ddp"), ("ddp", "whole")])
def test_batches_that_two_processes_can_not_share_leave_the_schedule_as_it_is(
    first, then, tmp_path
):
    # 1293 images are 19 batches of 65, but 20 of 64
    command = ("train", "--head", "softmax", "--epochs", "4", "--batch-size", "65")
    command = (*command, "--schedule", "one-cycle")
    assert torchlace(*command, "--run", "one", folder=tmp_path).code == 0
    cut = train_on(tmp_path, first, *command, "--run", "two", patch=interrupt_within)
    assert cut.code == 130
    assert train_on(tmp_path, then, *command, "--run", "two").code == 0
    one, two = ([row["lr"] for row in metrics(tmp_path / run)] for run in ("one", "two"))
    assert one == two
    state = torch.load(tmp_path / "two" / "last.ckpt", weights_only=True)["scheduler"]
    assert state["last_epoch"] == state["total_steps"] - 1 == 4 * 19


def interrupt_within():
    """Ctrl-C at the 22nd step of the first process."""
    plain = EagerStep.__call__

    def step(self, *batch):
        plain(self, *batch)
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 22 and self.fabric.global_rank == 0:
            os.kill(os.getpid(), signal.SIGINT)

    EagerStep.__call__ = step


def test_two_machines_do_what_one_does(tmp_path):
    """Two launchers that meet at an address, each with a process, as on two machines."""
    command = (*SHORT, "--epochs", "3", "--head", "lace", "--lr", "1e-4", "--device", "cpu")
    assert torchlace(*command, "--run", "one", folder=tmp_path).code == 0
    for done in machines([tmp_path] * 2, *command, "--nodes", "2", "--run", "two"):
        assert done.code == 0, done.err
    assert_alike(tmp_path)


def test_class_weights_count_over_both_processes(tmp_path):
    bunch = load_digits()
    images, labels = (bunch.images * 255 / 16).astype(np.uint8), bunch.target
    rare = (labels > 2) & (np.arange(len(labels)) % 8 > 0)
    train, test = ~rare[:1400], slice(1400, None)
    np.savez(
        tmp_path / "uneven.npz",
        x_train=images[:1400][train],
        y_train=labels[:1400][train],
        x_test=images[test],
        y_test=labels[test],
    )
    command = (*SHORT, "--data", "uneven.npz", "--head", "softmax", "--class-weights", "balanced")
    compare((*command, "--epochs", "2", "--lr", "3e-3"), tmp_path)


def test_an_interrupt_of_the_first_process_stops_both(tmp_path):
    command = (*SHORT, "--head", "softmax", "--epochs", "60", "--patience", "100", "--run", "run")
    said = interrupted(tmp_path, *command, *TWO)
    assert "Traceback" not in said
    assert said.count("the same command goes on from there") == 1
    rows = metrics(tmp_path / "run")
    assert f"stopped after epoch {len(rows)};" in said
    assert len(rows) < 60


def interrupted(folder, *command):
    """Start a training, interrupt its first process after three epochs; what it said."""
    with (folder / "err").open("w") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "torchlace.cli", *command],
            cwd=folder,
            env={**os.environ, **QUIET},
            stderr=err,
            start_new_session=True,
        )
    try:
        limit = time.monotonic() + PATIENCE
        while "epoch 3/" not in (folder / "err").read_text():
            assert time.monotonic() < limit
            time.sleep(0.02)
        started.send_signal(signal.SIGINT)
        assert started.wait(PATIENCE) == 130
        # the second process writes to the same file until it is gone
        while _alive(started.pid):
            assert time.monotonic() < limit
            time.sleep(0.02)
    finally:
        if _alive(started.pid):
            os.killpg(started.pid, signal.SIGKILL)
    return (folder / "err").read_text()


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
