"""Training with a backbone that torch.compile has compiled, by the real compiler, on a CPU."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from torch._dynamo.utils import counters
from training.processes import fresh, metrics, outcome, ranks, torchlace
from training.stopping import StopAfter, StoppedError

from torchlace.training import RunError, TrainConfig, train

# A low rate: Adam makes whole steps even of gradients that are nothing but rounding.
COMMON = {"head": "lace", "epochs": 3, "batch_size": 128, "lr": 1e-4, "device": "cpu", "seed": 3}
COMMAND = ("train", "--epochs", "3", "--batch-size", "128", "--lr", "1e-4", "--seed", "3")


@dataclass
class Runs:
    eager: Path
    compiled: Path
    stats: dict[str, int]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same run eagerly and compiled, with what the compiler counted."""
    folder = tmp_path_factory.mktemp("runs")
    train(TrainConfig(**COMMON), folder / "eager")
    torch.compiler.reset()
    counters.clear()
    train(TrainConfig(**COMMON, compile=True), folder / "compiled")
    return Runs(folder / "eager", folder / "compiled", dict(counters["stats"]))


def assert_alike(found, expected):
    """The same up to rounding; an image between two classes may fall to either side."""
    rows = zip(metrics(found), metrics(expected), strict=True)
    for mine, theirs in rows:
        assert (mine["epoch"], mine["lr"]) == (theirs["epoch"], theirs["lr"])
        for name in ("train_loss", "val_loss"):
            assert float(mine[name]) == pytest.approx(float(theirs[name]), rel=1e-3), name
    mine, theirs = (json.loads((run / "result.json").read_text()) for run in (found, expected))
    assert mine.keys() == theirs.keys()
    for name in ("test_loss", "test_calibrated_loss"):
        assert mine[name] == pytest.approx(theirs[name], rel=1e-3), name
    assert mine["test_accuracy"] == pytest.approx(theirs["test_accuracy"], abs=0.5)


def test_a_compiled_run_learns_what_an_eager_one_does(runs):
    assert_alike(runs.compiled, runs.eager)


def test_the_training_step_is_compiled_once_and_evaluation_is_not(runs):
    assert runs.stats.get("unique_graphs") == 1


def test_an_eager_run_compiles_nothing(tmp_path):
    torch.compiler.reset()
    counters.clear()
    train(TrainConfig(**{**COMMON, "epochs": 1}), tmp_path)
    assert not counters["stats"]


def test_weights_and_checkpoint_are_those_of_an_eager_run(runs):
    weights, plain = (load_file(run / "best.safetensors") for run in (runs.compiled, runs.eager))
    assert list(weights) == list(plain)
    torch.testing.assert_close(weights, plain, rtol=0, atol=1e-2)
    kept, usual = (
        torch.load(run / "last.ckpt", weights_only=True) for run in (runs.compiled, runs.eager)
    )
    assert kept.keys() == usual.keys()
    assert list(kept["model"]) == list(usual["model"])


def test_other_commands_take_a_compiled_run(runs, tmp_path):
    evaluated = torchlace("evaluate", runs.compiled, "--json", folder=tmp_path)
    assert evaluated.code == 0, evaluated.err
    result = json.loads((runs.compiled / "result.json").read_text())
    assert evaluated.json()["accuracy"] == pytest.approx(result["test_accuracy"])
    (digit,) = load_digits().images[:1]
    Image.fromarray(np.rint(digit * 255 / 16).astype(np.uint8)).save(tmp_path / "zero.png")
    predicted = torchlace("predict", runs.compiled, "zero.png", "--json", folder=tmp_path)
    assert predicted.code == 0, predicted.err
    assert predicted.json()[0]["classes"][0]["class"] == "0"


@pytest.mark.parametrize(("first", "then"), [(True, False), (False, True)])
def test_a_run_goes_on_compiled_or_not(first, then, runs, tmp_path):
    with pytest.raises(StoppedError):
        train(TrainConfig(**COMMON, compile=first), tmp_path, reporter=StopAfter(1))
    train(TrainConfig(**COMMON, compile=then), tmp_path)
    assert_alike(tmp_path, runs.eager)


def test_a_compiled_run_goes_on_as_one_that_never_stopped(runs, tmp_path):
    config = TrainConfig(**COMMON, compile=True)
    with pytest.raises(StoppedError):
        train(config, tmp_path, reporter=StopAfter(1))
    train(config, tmp_path)
    assert outcome(tmp_path) == outcome(runs.compiled)


@pytest.mark.parametrize(
    "options",
    [{"ema": 0.9, "clip": 1.0, "schedule": "cosine"}, {"background_norm": "layers.5"}],
    ids=["ema", "background_norm"],
)
def test_with_an_average_or_a_background_in_the_backbone(options, tmp_path):
    for name, compiled in (("eager", False), ("compiled", True)):
        train(TrainConfig(**COMMON, **options, compile=compiled), tmp_path / name)
    assert_alike(tmp_path / "compiled", tmp_path / "eager")


def test_two_processes_compile_too(runs, tmp_path):
    more = ("--compile", "--strategy", "ddp", "--run", "run")
    for rank in ranks(*COMMAND, *more, folders=[tmp_path] * 2):
        assert rank.code == 0, rank.err
    assert_alike(tmp_path / "run", runs.eager)


def test_a_model_spread_over_devices_is_not_compiled(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(RunError, match=r'compile needs the whole model.*use strategy="ddp"'):
        train(TrainConfig(**COMMON, compile=True, strategy="fsdp"), run)
    assert not run.exists()


def test_what_can_not_be_compiled_is_one_line_and_goes_on_without(runs, tmp_path):
    command = (*COMMAND, "--device", "cpu", "--run", "run")
    nowhere = {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    failed = fresh(*command, "--compile", folder=tmp_path, **nowhere)
    assert failed.code == 1
    (line,) = failed.told.splitlines()
    assert line.startswith("error: small-cnn can't be compiled here (")
    assert "no-such-compiler" in line
    assert line.endswith("): start again with --no-compile")
    done = torchlace(*command, folder=tmp_path)
    assert done.code == 0, done.err
    assert outcome(tmp_path / "run") == outcome(runs.eager)
