"""The linear softmax layer, alone and beside a loss on features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchlace._checks import check_number
from torchlace._precision import widened
from torchlace.functional import (
    amc_loss,
    center_loss,
    chunked_cross_entropy,
    cross_entropy,
    reduce,
    unit,
)
from torchlace.functional.targets import Targets, unlabelled
from torchlace.heads.base import Head, LossOptions
from torchlace.heads.fold import Folded, Normalize, linear


class Softmax(Head):
    """A linear layer with softmax cross-entropy.

    Paper: Bridle, "Probabilistic Interpretation of Feedforward Classification Network Outputs,
    with Relationships to Statistical Pattern Recognition", Neurocomputing, 1990.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        bias: add a learned bias.
        chunk: see :class:`Head`.
        device: as in torch layers.
        dtype: as in torch layers.

    Example:
        >>> head = Softmax(512, 10)
        >>> head.loss(torch.zeros(4, 512), torch.arange(4), label_smoothing=0.1).shape
        torch.Size([])
    """

    def __init__(
        self, in_features: int, num_classes: int, *, bias: bool = True, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.bias = nn.Parameter(self.weight.new_zeros(num_classes)) if bias else None

    def reset_parameters(self) -> None:
        """Start again: random class vectors, no bias."""
        super().reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def fold(self) -> Folded:
        """A linear layer."""
        bias = None if self.bias is None else self._lift(self.bias)
        return Folded(self.temperature, scores=linear(self._lift(self.weight), bias))

    def _logits(self, features: Tensor) -> Tensor:
        bias = None if self.bias is None else widened(self.bias, features.dtype)
        return F.linear(features, widened(self.weight, features.dtype), bias)

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        chunk = self._chunk_for(targets)
        if chunk is None:
            return cross_entropy(self._logits(features), targets, **options.named())
        weight = widened(self.weight, features.dtype)
        bias = None if self.bias is None else widened(self.bias, features.dtype)
        return chunked_cross_entropy(
            features, weight, targets, bias=bias, chunk=chunk, **options.named()
        )


class LogitNorm(Softmax):
    """A linear layer whose logits are brought to one length for each sample (Wei et al., 2022).

    A network can't grow more certain by longer logits then, on samples of no known class either.

    Paper: Wei et al., "Mitigating Neural Network Overconfidence with Logit Normalization",
    ICML 2022.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        scale: the length, one over the paper's temperature of .04.
        **options: as for :class:`Softmax`.

    Example:
        >>> logits = LogitNorm(512, 10)(torch.randn(2, 512))
        >>> torch.allclose(logits.norm(dim=1), torch.tensor(25.0))
        True
    """

    def __init__(
        self, in_features: int, num_classes: int, *, scale: float = 25.0, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.scale = check_number("scale", scale, 0)

    def fold(self) -> Folded:
        """Linear → Normalize."""
        layers = dict(super().fold().named_children())
        return Folded(self.temperature, **layers, normalize=Normalize(self.scale))

    def _logits(self, features: Tensor) -> Tensor:
        return unit(super()._logits(features)) * self.scale

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        chunk = self._chunk_for(targets)
        if chunk is None:
            return super()._loss(features, targets, options)
        # The length of all logits is a quadratic form of the feature: nothing N × C is needed.
        weight = widened(self.weight, features.dtype)
        if self.bias is not None:
            weight = torch.cat((weight, widened(self.bias, features.dtype)[:, None]), dim=1)
            features = torch.cat((features, features.new_ones(len(features), 1)), dim=1)
        lengths = torch.linalg.vecdot(features @ (weight.mT @ weight), features).clamp_min(0).sqrt()
        shortest = torch.finfo(lengths.dtype).tiny ** 0.5
        features = features * (self.scale / lengths.clamp_min(shortest))[:, None]
        return chunked_cross_entropy(features, weight, targets, chunk=chunk, **options.named())

    def extra_repr(self) -> str:
        """With the scale."""
        return f"{super().extra_repr()}, scale={self.scale:g}"


class Auxiliary(Softmax):
    """Softmax joined with a loss on the features: ``softmax_weight``·CE + ``auxiliary_weight``·aux.

    Class weights and ignored samples count for both parts, label smoothing for the first.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        auxiliary_weight: float = 0.1,
        softmax_weight: float = 0.9,
        **options: Any,
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.auxiliary_weight = check_number("auxiliary_weight", auxiliary_weight, 0, closed=True)
        self.softmax_weight = check_number("softmax_weight", softmax_weight, 0, closed=True)

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        labels, ignored = unlabelled(targets, options.ignore_index), options.ignore_index
        auxiliary = reduce(
            self._auxiliary(features, labels, options.weight),
            targets,
            options.reduction,
            weight=options.weight,
            ignore_index=ignored,
        )
        return (
            self.softmax_weight * super()._loss(features, targets, options)
            + self.auxiliary_weight * auxiliary
        )

    def _auxiliary(self, features: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        """The loss on the features of every sample, times its class weight, (N,)."""
        raise NotImplementedError(f"{type(self).__name__} must define _auxiliary")

    def extra_repr(self) -> str:
        """Width, classes and the two weights."""
        weights = f"auxiliary_weight={self.auxiliary_weight}, softmax_weight={self.softmax_weight}"
        return f"{super().extra_repr()}, {weights}"


class Center(Auxiliary):
    """A softmax layer trained with centre loss too (Wen et al., 2016).

    The centres are learned by gradient descent like every other parameter.

    Paper: Wen et al., "A Discriminative Feature Learning Approach for Deep Face Recognition",
    ECCV 2016.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        auxiliary_weight: of the centre loss.
        softmax_weight: of the cross-entropy.
        **options: as for :class:`Softmax`.

    Example:
        >>> Center(2, 10).centers.shape
        torch.Size([10, 2])
    """

    _reach, _because = 0.3, ", since the centre loss squares them"

    def __init__(self, in_features: int, num_classes: int, **options: Any) -> None:
        super().__init__(in_features, num_classes, **options)
        self.centers = nn.Parameter(torch.zeros_like(self.weight))

    def reset_parameters(self) -> None:
        """Start again, the centres at zero."""
        super().reset_parameters()
        nn.init.zeros_(self.centers)

    def _auxiliary(self, features: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        return center_loss(features, targets, widened(self.centers, features.dtype), weight)


class AMC(Auxiliary):
    """A softmax layer trained with angular margin contrastive loss too (Choi et al., 2020).

    Pairs are the first half of the batch against the second, told apart by the true labels; an
    ignored sample takes its partner's contrastive term along.

    Paper: Choi et al., "AMC-Loss: Angular Margin Contrastive Loss for Improved Explainability
    in Image Classification", CVPR Workshops 2020.

    Args:
        in_features: width of the features.
        num_classes: number of classes.
        margin: angle in radians, in (0, π), beyond which different classes are far enough apart.
        auxiliary_weight: of the contrastive loss.
        softmax_weight: of the cross-entropy.
        **options: as for :class:`Softmax`.

    Example:
        >>> AMC(512, 10)
        AMC(512, 10, auxiliary_weight=0.1, softmax_weight=0.9, margin=0.5)
    """

    def __init__(
        self, in_features: int, num_classes: int, *, margin: float = 0.5, **options: Any
    ) -> None:
        super().__init__(in_features, num_classes, **options)
        self.margin = check_number("margin", margin, 0, torch.pi)

    def _auxiliary(self, features: Tensor, targets: Targets, weight: Tensor | None) -> Tensor:
        return amc_loss(features, targets, self.margin, weight)

    def extra_repr(self) -> str:
        """With the margin."""
        return f"{super().extra_repr()}, margin={self.margin}"
