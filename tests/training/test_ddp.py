"""Two real processes on the CPU."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from training.processes import PATIENCE, QUIET, fresh, metrics, torchlace

SHORT = ("train", "--backbone", "small-cnn", "--batch-size", "128", "--seed", "3", "--lr", "3e-4")
TWO = ("--device", "cpu", "--devices", "2", "--strategy", "ddp")
SPREAD = ("--device", "cpu", "--devices", "2", "--strategy", "fsdp")
CASES = {
    "lace": ("--ema", "0.9", "--clip", "1", "--schedule", "cosine"),
    "softmax": ("--label-smoothing", "0.1"),
    "adacos": (),
}


def compare(command, folder, processes=TWO):
    torchlace(*command, "--json", "--run", "one", folder=folder)
    two = fresh(*command, *processes, "--json", "--run", "two", folder=folder)
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
    ],
    ids=lambda options: options[1],
)
def test_a_model_spread_over_two_processes_learns_as_a_whole_one(options, tmp_path):
    compare((*SHORT, "--epochs", "3", *options), tmp_path, SPREAD)


@pytest.mark.parametrize("first", ["whole", "spread"])
def test_a_whole_run_goes_on_spread_and_the_other_way_round(first, tmp_path):
    command = (*SHORT, "--head", "lace", "--epochs", "7", "--lr", "1e-4", "--device", "cpu")
    assert torchlace(*command, "--run", "one", folder=tmp_path).code == 0
    ways = {"whole": (), "spread": SPREAD}
    interrupted(tmp_path, *command, "--run", "two", *ways[first])
    then = next(way for name, way in ways.items() if name != first)
    done = fresh(*command, "--run", "two", *then, folder=tmp_path)
    assert done.code == 0, done.err
    assert "resuming two after epoch" in done.err
    assert_alike(tmp_path)


def test_two_machines_do_what_one_does(tmp_path):
    """Two launchers that meet at an address, each with a process, as on two machines."""
    command = (*SHORT, "--epochs", "3", "--head", "lace", "--lr", "1e-4", "--device", "cpu")
    assert torchlace(*command, "--run", "one", folder=tmp_path).code == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    launcher += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    command += ("--nodes", "2", "--run", "two")
    machines = [
        subprocess.Popen(
            [*launcher, "--node-rank", str(rank), "-m", "--", "torchlace.cli", *command],
            cwd=tmp_path,
            env={**os.environ, **QUIET},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for machine in machines:
            said = machine.communicate(timeout=2 * PATIENCE)[1]
            assert machine.returncode == 0, said
    finally:
        for machine in machines:
            machine.kill()
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
