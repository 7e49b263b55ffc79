"""Where a head compares features with signatures: angles, the whitening, both in one space."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlace.evaluation.scores import check_labels
from torchlace.functional import cosine
from torchlace.heads import LACE, Head, Joint
from torchlace.heads.cosine import CosineHead

_ROWS = 512


class Spaces(NamedTuple):
    """Features and signatures as a head sees them."""

    cosines: Tensor
    """Of every sample to every signature, as the head compares them, (N, C)."""
    signatures: Tensor
    """Class vectors in the space where features are compared, (C, k)."""
    raw_signatures: Tensor
    """Where these lie among the features, (C, d)."""
    whitened: Tensor | None = None
    """Features whitened by the background, (N, k); None without one background."""
    factor: Tensor | None = None
    """Wᵀ of the whitening in fp64, (d, k), likewise."""


@torch.no_grad()
def spaces(head: Head, features: Tensor) -> Spaces:
    """What a head makes of features on its device.

    A :class:`Joint` is seen through its heaviest head.
    """
    while isinstance(head, Joint):
        heaviest = max(head.weights, key=head.weights.__getitem__)
        head = head.heads[heaviest]  # type: ignore[assignment]
    cosines = _cosines(head, features)
    if not isinstance(head, LACE):
        signatures = head.signatures.float()
        return Spaces(cosines, signatures, signatures)
    background = head.background
    identity = torch.eye(head.in_features, dtype=torch.float64, device=features.device)
    factor = background.transform(identity)
    directions = head.signatures.double()
    if head.signature_space == "whitened":
        directions = directions @ torch.linalg.pinv(factor)
    if background.per_class:
        origin = background.mean.double().mean(0)
        raw = _among(features.double() - origin, origin, directions, directions)
        return Spaces(cosines, raw, raw)
    whitened = torch.cat([head.whiten(part) for part in features.split(_ROWS)]).float()
    raw = _among(whitened, background.mean.double(), directions, directions @ factor)
    return Spaces(cosines, head.whitened_signatures().float(), raw, whitened, factor)


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


def whitening_scores(factor: Tensor, whitened: Tensor) -> dict[str, Any]:
    """Spectrum of the background covariance Σ, and whitened features against mean 0, covariance I.

    Args:
        factor: Wᵀ with WᵀW = Σ⁻¹, (d, k): what the whitening makes of the unit vectors.
        whitened: W(x - μ) for features x of the background, (N, k).

    Returns:
        ``spectrum``: the eigenvalues of Σ, descending; ``condition``: largest over smallest;
        ``effective_dimension``: their participation ratio, (Σλ)² / Σλ²; ``white_mean_norm``: length
        of the mean of the whitened features; ``white_spectrum``: the d largest eigenvalues of their
        covariance, descending; ``white_covariance_error``: root mean square of these minus 1, which
        is the Frobenius norm of covariance - I over that of I.

    Example:
        >>> x = torch.randn(5000, 2) * torch.tensor([2.0, 1.0])
        >>> scores = whitening_scores(torch.diag(torch.tensor([0.5, 1.0])), x / x.std(0))
        >>> scores["spectrum"], scores["condition"], scores["effective_dimension"]
        ([4.0, 1.0], 4.0, 1.4705882352941178)
    """
    gains = torch.linalg.svdvals(factor.double())
    spectrum = gains.flip(0).square().reciprocal()
    mean = whitened.double().mean(dim=0)
    centred = whitened.double() - mean
    covariance = centred.mT @ centred / len(whitened)
    white = torch.linalg.eigvalsh(covariance).flip(0)[: len(factor)]
    return {
        "spectrum": spectrum.tolist(),
        "condition": (spectrum[0] / spectrum[-1]).item(),
        "effective_dimension": (spectrum.sum().square() / spectrum.square().sum()).item(),
        "white_mean_norm": torch.linalg.vector_norm(mean).item(),
        "white_covariance_error": (white - 1).square().mean().sqrt().item(),
        "white_spectrum": white.clamp_min(0).tolist(),
    }


def _summary(angles: Tensor) -> dict[str, Any]:
    bins = angles.floor().long().clamp(0, 179)
    return {
        "mean": angles.mean().item(),
        "std": angles.std(correction=0).item(),
        "histogram": torch.bincount(bins.cpu(), minlength=180).tolist(),
    }


def _cosines(head: Head, features: Tensor) -> Tensor:
    if not isinstance(head, CosineHead):
        return cosine(features, head.signatures.to(features.dtype))
    logits = torch.cat([head(part) for part in features.split(_ROWS)])
    cosines: Tensor = logits / head.scale
    return cosines


def _among(compared: Tensor, origin: Tensor, directions: Tensor, seen: Tensor) -> Tensor:
    """Points from ``origin`` along ``directions``, as far out as a typical sample is.

    A cosine says nothing about the length of a signature; ``compared`` and ``seen`` are samples and
    directions where the head compares them.
    """
    typical: Tensor = torch.linalg.vector_norm(compared.double(), dim=1).median()
    lengths: Tensor = torch.linalg.vector_norm(seen, dim=1, keepdim=True)
    return (origin + directions * (typical / lengths.clamp_min(1e-300))).float()
