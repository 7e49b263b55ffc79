import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from torchlace.evaluation import (
    brier_score,
    calibration_scores,
    expected_calibration_error,
    reliability_bins,
)


@pytest.fixture(params=[(2000, 10), (500, 2), (1, 7)])
def sample(request):
    rows, classes = request.param
    generator = torch.Generator().manual_seed(rows)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    return logits, labels


def test_brier_is_the_squared_distance_to_the_truth(sample):
    logits, labels = sample
    chances = logits.double().softmax(1).numpy()
    truth = np.eye(chances.shape[1])[labels]
    expected = ((chances - truth) ** 2).sum(1).mean()
    assert brier_score(logits.softmax(1), labels) == pytest.approx(expected, rel=1e-5)


def test_brier_of_two_classes_is_twice_that_of_one():
    chances = torch.tensor([[0.2, 0.8], [0.9, 0.1], [0.4, 0.6]])
    labels = torch.tensor([1, 0, 0])
    expected = 2 * brier_score_loss(labels, chances[:, 1])
    assert brier_score(chances, labels) == pytest.approx(expected, rel=1e-6)


def test_error_against_torchmetrics(sample):
    logits, labels = sample
    scores = calibration_scores(logits, labels, temperature=1.7)
    for key, divisor in (("ece", 1.0), ("calibrated_ece", 1.7)):
        expected = multiclass_calibration_error(
            (logits / divisor).softmax(1), labels, logits.shape[1], n_bins=15
        )
        assert scores[key] == pytest.approx(expected.item(), abs=1e-5)


def test_bins_hold_every_sample_once(sample):
    logits, labels = sample
    chances = logits.softmax(1)
    bins = reliability_bins(chances, labels)
    confidence = chances.max(1).values
    right = chances.argmax(1) == labels
    assert len(bins) == 15
    assert sum(each["count"] for each in bins) == len(labels)
    for each in bins:
        inside = (confidence > each["lower"]) & (confidence <= each["upper"])
        assert each["count"] == int(inside.sum())
        if each["count"]:
            expected = confidence[inside].double().mean().item()
            assert each["confidence"] == pytest.approx(expected, rel=1e-6)
            assert each["accuracy"] == pytest.approx(right[inside].double().mean().item())
        else:
            assert each["confidence"] is each["accuracy"] is None


def test_certainty_falls_into_the_last_bin():
    bins = reliability_bins(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert bins[-1]["count"] == 1
    assert expected_calibration_error(bins) == 1


def test_the_temperature_that_made_the_labels_calibrates():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(40_000, 5, generator=generator)
    labels = torch.multinomial((logits / 3).softmax(1), 1, generator=generator)[:, 0]
    scores = calibration_scores(logits, labels, temperature=3.0)
    assert scores["calibrated_ece"] < 0.01 < 0.1 < scores["ece"]
    assert scores["calibrated_brier"] < scores["brier"]
    assert scores["reliability"]["after"] == reliability_bins(
        (logits.double() / 3).softmax(1), labels
    )
