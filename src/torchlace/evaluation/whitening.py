"""What a whitening does: the spectrum of its background, and how white features come out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
    mean = whitened.mean(0, dtype=torch.float64)
    covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64, device=whitened.device)
    for part in whitened.split(8192):
        centred = part.double() - mean
        covariance.addmm_(centred.mT, centred)
    white = torch.linalg.eigvalsh(covariance / len(whitened)).flip(0)[: len(factor)]
    return {
        "spectrum": spectrum.tolist(),
        "condition": (spectrum[0] / spectrum[-1]).item(),
        "effective_dimension": (spectrum.sum().square() / spectrum.square().sum()).item(),
        "white_mean_norm": torch.linalg.vector_norm(mean).item(),
        "white_covariance_error": (white - 1).square().mean().sqrt().item(),
        "white_spectrum": white.clamp_min(0).tolist(),
    }
