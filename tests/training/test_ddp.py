"""Two real processes on the CPU."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_digits
from training.processes import PATIENCE, QUIET, fresh, metrics, torchlace

SHORT = ("train", "--backbone", "small-cnn", "--batch-size", "128", "--seed", "3", "--lr", "3e-4")
TWO = ("--device", "cpu", "--devices", "2", "--strategy", "ddp")
CASES = {
    "lace": ("--ema", "0.9", "--clip", "1", "--schedule", "cosine"),
    "softmax": ("--label-smoothing", "0.1"),
    "adacos": (),
}


def compare(command, folder):
    one = torchlace(*command, "--json", "--run", "one", folder=folder)
    two = fresh(*command, *TWO, "--json", "--run", "two", folder=folder)
    assert two.code == 0, two.err
    one, two = one.json(), two.json()
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
    with (tmp_path / "err").open("w") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "torchlace.cli", *command, *TWO],
            cwd=tmp_path,
            env={**os.environ, **QUIET},
            stderr=err,
            start_new_session=True,
        )
    try:
        limit = time.monotonic() + PATIENCE
        while "\nepoch 3/" not in (tmp_path / "err").read_text():
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
    said = (tmp_path / "err").read_text()
    assert "Traceback" not in said
    assert said.count("the same command goes on from there") == 1
    rows = metrics(tmp_path / "run")
    assert f"stopped after epoch {len(rows)};" in said
    assert len(rows) < 60


def _alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
