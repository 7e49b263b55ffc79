"""Where a head compares: whitened features, class signatures, cosines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchlace.backgrounds import ClasswiseBackground
from torchlace.functional import cosine
from torchlace.heads import LACE, Head, Joint
from torchlace.heads.cosine import CosineHead

_ROWS = 512


@dataclass(frozen=True)
class Spaces:
    """Features and signatures as a head sees them.

    Attributes:
        cosines: of every sample to every signature, as the head compares them, (N, C).
        signatures: class vectors in the space where features are compared, (C, k).
        raw_signatures: where these lie among the features, (C, d).
        whitened: features whitened by the background, (N, k); None without one background.
        factor: Wᵀ of the whitening in fp64, (d, k), likewise.
    """

    cosines: Tensor
    signatures: Tensor
    raw_signatures: Tensor
    whitened: Tensor | None = None
    factor: Tensor | None = None


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
    if isinstance(background, ClasswiseBackground):
        origin = background.mean.double().mean(0)
        raw = _among(features.double() - origin, origin, directions, directions)
        return Spaces(cosines, raw, raw)
    whitened = torch.cat([head.whiten(part) for part in features.split(_ROWS)]).float()
    raw = _among(whitened, background.mean.double(), directions, directions @ factor)
    return Spaces(cosines, head.whitened_signatures().float(), raw, whitened, factor)


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
