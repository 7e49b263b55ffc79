import math

import pytest
from training.processes import metrics, outcome, torchlace

from torchlace._checks import checks
from torchlace.models import Classifier
from torchlace.training import RunError, TrainConfig, train


def test_a_learning_rate_beyond_reason_is_one_line(tmp_path):
    done = torchlace("train", "--lr", "1e20", "--run", "run", folder=tmp_path)
    assert done.code == 1
    assert done.told.startswith("error: ")
    assert done.told.count("\n") == 1
    assert "in epoch 1. Lower the learning rate" in done.err
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_last_step_that_spoils_the_weights_is_noticed_before_they_are_kept(tmp_path):
    config = TrainConfig(epochs=1, batch_size=5000, lr=1e18)
    with checks(False), pytest.raises(RunError, match="the validation loss became nan in epoch 1"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "last.ckpt").exists()


def test_a_loss_that_is_no_number_keeps_the_checkpoint_before_it(tmp_path, monkeypatch):
    config = TrainConfig(epochs=4, batch_size=1200)
    train(config, tmp_path / "good")
    sound, calls = Classifier.loss, []

    def unsound(self, *arguments, **options):
        calls.append(1)
        return sound(self, *arguments, **options) * (math.nan if len(calls) == 3 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(Classifier, "loss", unsound)
        with pytest.raises(RunError, match=r"became nan in epoch 3; the checkpoint of epoch 2 is"):
            train(config, tmp_path / "bad")
    assert len(metrics(tmp_path / "bad")) == 2
    train(config, tmp_path / "bad")
    assert outcome(tmp_path / "bad") == outcome(tmp_path / "good")
