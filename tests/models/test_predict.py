"""Every figure and probability of a trained model comes from one function."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import torchlace as tl
from torchlace.cli import app
from torchlace.data import load_data
from torchlace.detection import OpenSet
from torchlace.evaluation import inspect
from torchlace.heads import LACE
from torchlace.models import predict
from torchlace.runs import load_run
from torchlace.training import TrainConfig, train


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
def test_every_command_says_the_same_of_a_run(precision, tmp_path):
    config = TrainConfig(epochs=2, batch_size=128, device="cpu", precision=precision)
    result = train(config, tmp_path / "run")
    found = inspect(tmp_path / "run", device="cpu")
    chances = found.probabilities.float()
    assert found.scores["accuracy"] == result["test_accuracy"]
    for name in ("loss", "calibrated_loss"):
        assert found.scores[name] == pytest.approx(result[f"test_{name}"], rel=1e-6)

    test = load_data("digits").test
    images = test.batch(torch.arange(40))
    for place, pixels in enumerate(images[:, 0].numpy()):
        Image.fromarray(pixels).save(tmp_path / f"{place:02}.png")
    files = [str(tmp_path / f"{place:02}.png") for place in range(40)]
    command = ["predict", str(tmp_path / "run"), *files, "--top", "10", "--json", "--device", "cpu"]
    said = json.loads(CliRunner().invoke(app, command).output)
    for one, expected in zip(said, chances[:40], strict=True):
        values = {int(each["class"]): each["probability"] for each in one["classes"]}
        assert [values[label] for label in range(10)] == pytest.approx(expected.tolist(), abs=1e-6)

    run = load_run(tmp_path / "run", "cpu")
    prepared = run.prepare(test.batch(torch.arange(len(test))))
    guarded = OpenSet(run.model, score="max-softmax", false_rejection=0.1).fit(prepared)
    largest = found.logits.double().softmax(1).amax(1)
    assert np.allclose(guarded.score_samples(prepared), largest, atol=1e-6)
    labels = np.asarray(guarded.predict(prepared))
    accepted = labels >= 0
    assert np.array_equal(labels[accepted], found.logits.argmax(1).numpy()[accepted])


def test_autocast_outside_changes_nothing():
    model = tl.Classifier("small-cnn", num_classes=10, channels=1)
    images = torch.randn(6, 1, 8, 8)
    found = predict(model, images.split(6))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(found.logits, predict(model, images.split(6)).logits)
    lower = predict(model, images.split(6), autocast=lambda: torch.autocast("cpu", torch.bfloat16))
    assert lower.logits.dtype == torch.float32
    assert not torch.equal(found.logits, lower.logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_it_computes_as_the_weights_do_and_leaves_the_model_as_it_was(dtype):
    model = tl.Classifier("small-cnn", num_classes=10, channels=1).to(dtype).train()
    found = predict(model, torch.zeros(5, 1, 8, 8, dtype=torch.uint8).split(2), lambda x: x / 255)
    assert model.training
    assert {each.dtype for each in found} == {torch.promote_types(dtype, torch.float32)}
    assert not any(each.requires_grad for each in found)


def test_a_head_takes_features():
    head, features = LACE(4, 3).eval(), torch.randn(5, 4)
    found = predict(head, [features])
    assert torch.equal(found.features, features)
    assert torch.equal(found.logits, head(features))


def test_other_models_and_nothing_at_all_are_errors():
    with pytest.raises(TypeError, match="Linear is neither a"):
        predict(nn.Linear(4, 3), [torch.zeros(1, 4)])
    with pytest.raises(ValueError, match="there are no images to predict"):
        predict(LACE(4, 3), [])
