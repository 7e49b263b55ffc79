import random
import signal
import time

import pytest
from training.processes import Command, outcome, torchlace

KILLS = 4
LONGEST = 4
EPOCHS = str(KILLS * LONGEST + 6)
ALIKE = ("train", "--epochs", EPOCHS, "--patience", "1000", "--batch-size", "128")
SETTINGS = {
    "lace": (
        *("--head", "lace", "--schedule", "one-cycle", "--lr", "0.005", "--ema", "0.9"),
        *("--clip", "1", "--label-smoothing", "0.1"),
    ),
    "adacos": ("--head", "adacos", "--optimizer", "sgd", "--lr", "0.05", "--schedule", "cosine"),
    "mixed": ("--recipe", "fast", "--lr", "0.05", "--cutmix", "0.5", "--mixup", "0.3"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(case, tmp_path):
    command = (*ALIKE, *SETTINGS[case], "--run")
    assert torchlace(*command, "calm", folder=tmp_path).code == 0
    rng = random.Random(case)
    for _ in range(KILLS):
        started = Command(*command, "stormy", folder=tmp_path)
        started.wait_for_epochs(rng.randint(0, LONGEST))
        time.sleep(rng.uniform(0, 0.3))
        started.send(signal.SIGKILL)
        assert started.done().code == -signal.SIGKILL
    last = torchlace(*command, "stormy", folder=tmp_path)
    assert last.code == 0, last.err
    assert outcome(tmp_path / "stormy") == outcome(tmp_path / "calm")
