"""The LACE loss and its derivatives in closed form."""

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from torchlace.functional.geometry import magnitude

__all__ = ["LACEGradients", "lace_gradients"]


class LACEGradients(NamedTuple):
    """The LACE loss and its derivative with respect to each of its inputs.

    Attributes:
        loss: The mean cross entropy, a scalar.
        features: Derivative with respect to the features, ``(N, d)``.
        signatures: Derivative with respect to the target signatures, ``(C, d)``.
        mean: Derivative with respect to the background mean, ``(d,)``.
        precision: Derivative with respect to the inverse background covariance, ``(d, d)``.
    """

    loss: Tensor
    features: Tensor
    signatures: Tensor
    mean: Tensor
    precision: Tensor


def lace_gradients(
    features: Tensor,
    targets: Tensor,
    signatures: Tensor,
    mean: Tensor,
    precision: Tensor,
    *,
    scale: float = 1.0,
) -> LACEGradients:
    r"""Differentiate the LACE loss in closed form, by matrix products alone.

    The loss is the mean cross entropy of ``scale`` times the ACE statistic

    .. math::
        a_{nj} = \frac{s_j^T P (x_n - \mu)}
                      {\sqrt{s_j^T P s_j} \sqrt{(x_n - \mu)^T P (x_n - \mu)}}

    with ``P`` the precision. Where a form under a root is zero, the statistic and its derivative
    are zero. A negative form, which no inverse covariance has, gives NaN. Of an empty batch all are
    zero.

    The entries of ``P`` count as independent, so the derivative with respect to it is in general
    not symmetric. Where ``P`` is constrained to be symmetric, take the symmetric part,
    ``(G + G.T) / 2``.

    Args:
        features: Features, one sample a row, ``(N, d)``.
        targets: Class indices, ``(N,)``.
        signatures: Target signatures, one class a row, ``(C, d)``.
        mean: Background mean, ``(d,)``.
        precision: Inverse background covariance, ``(d, d)``.
        scale: Factor on the statistic before the softmax.

    Returns:
        The loss and its derivatives, each shaped like the input it belongs to.

    Example:
        >>> import torch
        >>> features = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
        >>> signatures = torch.eye(2)
        >>> result = lace_gradients(
        ...     features, torch.tensor([0, 1]), signatures, torch.zeros(2), torch.eye(2)
        ... )
        >>> result.loss
        tensor(0.3133)
        >>> result.features
        tensor([[0.0000, 0.0672],
                [0.0448, 0.0000]])
    """
    unit_x, inverse_norm_x = _normalise(features - mean, precision)
    unit_s, inverse_norm_s = _normalise(signatures, precision)
    projected_s = unit_s @ precision
    cosine = unit_x @ projected_s.T
    logits = scale * cosine

    error = logits.softmax(dim=1) - one_hot(targets, len(signatures))
    rows = max(features.shape[0], 1)
    weight = error * (scale / rows)
    radial = weight * cosine
    radial_x = radial.sum(dim=1, keepdim=True)
    radial_s = radial.sum(dim=0).unsqueeze(1)

    symmetric = (precision + precision.T) / 2
    weighted_x = weight.T @ unit_x
    grad_features = inverse_norm_x * (weight @ projected_s - radial_x * (unit_x @ symmetric))
    grad_signatures = inverse_norm_s * (weighted_x @ precision.T - radial_s * (unit_s @ symmetric))
    grad_norms = unit_x.T @ (radial_x * unit_x) + unit_s.T @ (radial_s * unit_s)
    return LACEGradients(
        loss=cross_entropy(logits, targets, reduction="sum") / rows,
        features=grad_features,
        signatures=grad_signatures,
        mean=-grad_features.sum(dim=0),
        precision=unit_s.T @ weighted_x - grad_norms / 2,
    )


def _normalise(vectors: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Scale each row to length one in the metric ``precision``; also return the factors."""
    size = magnitude(vectors)
    vectors = vectors / size
    form = ((vectors @ precision) * vectors).sum(dim=1, keepdim=True)
    inverse_norm = form.rsqrt().masked_fill(form == 0, 0.0)
    return vectors * inverse_norm, inverse_norm / size
