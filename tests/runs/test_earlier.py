"""Runs from before LACE whitened within classes go on meaning what they meant."""

import re

import pytest
import torch

from torchlace.evaluation import inspect
from torchlace.runs import Run, load_run
from torchlace.runs.seals import BLANK, sealed_text
from torchlace.training import TrainConfig, train

TOTAL = {"background": "total", "scale": "adacos", "bias": False}


@pytest.fixture
def run(tmp_path):
    """A run of version 2, whose settings say "lace" and nothing more."""
    config = TrainConfig(epochs=1, device="cpu", head="lace", head_options=TOTAL)
    train(config, tmp_path / "run")
    path = tmp_path / "run" / "config.yaml"
    text, count = re.subn(r"head_options:\n(  .*\n)+", "head_options: {}\n", path.read_text())
    assert count == 1
    text, count = re.subn(r"format: \d", "format: 2", text)
    assert count == 1
    path.write_bytes(sealed_text(re.sub("sha256:[0-9a-f]{64}(?=\n*$)", BLANK, text)))
    return Run(tmp_path / "run")


def test_an_earlier_run_is_what_it_was(run):
    config = run.config()
    assert config.head_options == TOTAL
    head = load_run(run, "cpu").model.head
    assert type(head.background).__name__ == "Total"
    assert head.bias is None
    assert inspect(run, device="cpu").scores["accuracy"] == run.result()["test_accuracy"]


def test_settings_taken_from_an_earlier_run_mean_what_they_meant(run):
    assert TrainConfig.from_yaml(run.config_path).head_options == TOTAL


def test_an_earlier_run_is_not_one_of_today(run):
    assert run.config() != TrainConfig(epochs=1, device="cpu", head="lace")
    assert TrainConfig(epochs=1).head_options == {}
    assert torch.isfinite(load_run(run, "cpu").model.head.weight).all()
