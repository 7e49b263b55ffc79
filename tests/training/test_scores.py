import math

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, recall_score, top_k_accuracy_score

from torchlace.evaluation import class_accuracies, classification_scores


@pytest.fixture(params=[(200, 10), (50, 3), (1, 7)])
def sample(request):
    rows, classes = request.param
    generator = torch.Generator().manual_seed(rows)
    logits = 3 * torch.randn(rows, classes, generator=generator)
    return logits, torch.randint(classes, (rows,), generator=generator)


def test_scores_against_scikit_learn(sample):
    logits, labels = sample
    classes = range(logits.shape[1])
    scores = classification_scores(logits, labels, temperature=2.5)
    chances = logits.double().softmax(dim=1)
    softened = (logits.double() / 2.5).softmax(dim=1)
    top = 100.0
    if logits.shape[1] > 5:
        top = 100 * top_k_accuracy_score(labels, chances, k=5, labels=classes)
    assert scores == {
        "accuracy": pytest.approx(100 * accuracy_score(labels, logits.argmax(1))),
        "top5_accuracy": pytest.approx(top),
        "loss": pytest.approx(log_loss(labels, chances, labels=classes), rel=1e-5),
        "calibrated_loss": pytest.approx(log_loss(labels, softened, labels=classes), rel=1e-5),
    }


def test_accuracy_of_classes_is_their_recall(sample):
    logits, labels = sample
    recalls = recall_score(
        labels,
        logits.argmax(1),
        labels=range(logits.shape[1]),
        average=None,
        zero_division=math.nan,
    )
    expected = pytest.approx(100 * recalls, nan_ok=True)
    assert class_accuracies(logits, labels) == expected
