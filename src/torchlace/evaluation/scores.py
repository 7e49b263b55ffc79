"""Figures of merit from logits and labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace.evaluation.labels import check_labels


def classification_scores(
    logits: Tensor, labels: Tensor, temperature: float = 1.0
) -> dict[str, Any]:
    """Accuracy, top-5 accuracy (percent), cross-entropy before and after the temperature.

    Example:
        >>> scores = classification_scores(torch.eye(3) * 9, torch.tensor([0, 1, 1]))
        >>> round(scores["accuracy"], 2), round(scores["top5_accuracy"], 2)
        (66.67, 100.0)
    """
    labels = check_labels(logits, labels)
    # Of equal logits the first decides, as everywhere; topk puts them in any order.
    right = logits.argmax(dim=1) == labels
    best = logits.topk(min(5, logits.shape[1]), dim=1).indices
    hits = (best == labels[:, None]).any(dim=1) | right
    return {
        "accuracy": 100 * right.double().mean().item(),
        "top5_accuracy": 100 * hits.double().mean().item(),
        "loss": F.cross_entropy(logits, labels).item(),
        "calibrated_loss": F.cross_entropy(logits / temperature, labels).item(),
    }


def class_accuracies(logits: Tensor, labels: Tensor) -> list[float]:
    """Accuracy of every class in percent; NaN for one without samples.

    Example:
        >>> class_accuracies(torch.eye(2), torch.tensor([0, 0]))
        [50.0, nan]
    """
    table = confusion_matrix(logits, labels).double()
    return (100 * table.diagonal() / table.sum(dim=1)).tolist()


def confusion_matrix(logits: Tensor, labels: Tensor) -> Tensor:
    """How many samples of each class (rows) were given each class (columns), (C, C), on the CPU.

    Example:
        >>> confusion_matrix(torch.eye(3), torch.tensor([0, 1, 1]))
        tensor([[1, 0, 0],
                [0, 1, 1],
                [0, 0, 0]])
    """
    labels = check_labels(logits, labels)
    classes = logits.shape[1]
    pairs = labels * classes + logits.argmax(dim=1)
    return torch.bincount(pairs.cpu(), minlength=classes**2).view(classes, classes)
