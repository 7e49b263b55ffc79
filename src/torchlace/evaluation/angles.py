"""The angle θ between features and class signatures."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchlace.evaluation.labels import check_labels


def signature_angles(cosines: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Angles in degrees to the true signature and to the nearest wrong one, (N,) each.

    Args:
        cosines: of every sample to every signature, (N, C), with two or more classes.
        labels: the true classes, (N,).

    Example:
        >>> signature_angles(torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0]))
        (tensor([0.], dtype=torch.float64), tensor([60.0000], dtype=torch.float64))
    """
    if cosines.dim() != 2 or cosines.shape[1] < 2:
        raise ValueError(
            f"cosines must have shape (N, C) with two or more classes, got {tuple(cosines.shape)}"
        )
    labels = check_labels(cosines, labels)
    cosines, own = cosines.double().clamp(-1, 1), labels[:, None]
    truth = cosines.gather(1, own)[:, 0]
    wrong = cosines.scatter(1, own, -torch.inf).amax(dim=1)
    return truth.acos().rad2deg(), wrong.acos().rad2deg()


def angle_scores(cosines: Tensor, labels: Tensor) -> dict[str, Any]:
    """Mean, deviation and histogram (a bin for each degree) of :func:`signature_angles`.

    Example:
        >>> scores = angle_scores(torch.eye(3), torch.tensor([0, 1, 1]))
        >>> round(scores["true"]["mean"], 6), scores["nearest_wrong"]["histogram"][90]
        (30.0, 2)
    """
    truth, wrong = signature_angles(cosines, labels)
    return {"true": _summary(truth), "nearest_wrong": _summary(wrong)}


def _summary(angles: Tensor) -> dict[str, Any]:
    bins = angles.floor().long().clamp(0, 179)
    return {
        "mean": angles.mean().item(),
        "std": angles.std(correction=0).item(),
        "histogram": torch.bincount(bins.cpu(), minlength=180).tolist(),
    }
