"""Several heads on the same features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._checks import check_number
from torchlace._precision import compute_dtype
from torchlace.functional.targets import Targets
from torchlace.heads.base import Head, LossOptions


class Joint(Head):
    """Several heads on the same features: their losses and log-probabilities are added, weighted.

    Args:
        heads: heads by name, of equal width and classes.
        weights: of each head, by name; equal weights that sum to one if omitted.

    Example:
        >>> from torchlace.heads import LACE, Softmax
        >>> head = Joint(
        ...     {"softmax": Softmax(512, 10), "lace": LACE(512, 10)}, {"softmax": 0.9, "lace": 0.1}
        ... )
        >>> head.eval()(torch.randn(4, 512)).shape
        torch.Size([4, 10])
    """

    def __init__(
        self, heads: Mapping[str, Head], weights: Mapping[str, float] | None = None
    ) -> None:
        if not isinstance(heads, Mapping):
            raise TypeError(f"heads must be a dict of heads by name, got {type(heads).__name__}")
        if not heads:
            raise ValueError("heads must hold at least one head, got none")
        for name, head in heads.items():
            if not name or "." in name:
                raise ValueError(f"names of heads must be non-empty and without dots, got {name!r}")
            if hasattr(nn.ModuleDict, name):
                raise ValueError(f"{name!r} can't be the name of a head: torch uses it itself")
            if not isinstance(head, Head):
                raise TypeError(
                    f"heads[{name!r}] must be a torchlace head, got {type(head).__name__}"
                )
        shapes = {name: (head.in_features, head.num_classes) for name, head in heads.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"heads must agree on (in_features, num_classes), got {shapes}")
        if weights is None:
            weights = dict.fromkeys(heads, 1 / len(heads))
        if set(weights) != set(heads):
            raise ValueError(f"weights must name the heads {sorted(heads)}, got {sorted(weights)}")
        first = next(iter(heads.values()))
        super().__init__(first.in_features, first.num_classes, device="meta")
        del self.weight
        self.register_buffer("temperature", torch.ones_like(first.temperature))
        self.heads = nn.ModuleDict(heads)
        self.weights = {
            name: check_number(f"weights[{name!r}]", weights[name], 0, closed=True)
            for name in heads
        }
        if not any(self.weights.values()):
            raise ValueError("weights must not all be zero: nothing would be learned or told apart")

    def reset_parameters(self) -> None:
        """Start again with every head."""
        nn.init.ones_(self.temperature)
        for _, head in self._named():
            head.reset_parameters()

    @property
    def signatures(self) -> Tensor:
        """None of its own."""
        raise AttributeError(
            "a Joint has no signatures of its own: read joint.heads[name].signatures"
        )

    def _account(self) -> str:
        """What each head says."""
        parts = (f"{self.weights[name]:g} × {head._account()}" for name, head in self._named())
        return "Joint of " + "; ".join(parts)

    def _named(self) -> list[tuple[str, Any]]:
        return list(self.heads.items())

    def _logits(self, features: Tensor) -> Tensor:
        parts = [
            self.weights[name] * torch.log_softmax(head(features), dim=1)
            for name, head in self._named()
        ]
        return torch.stack(parts).sum(0)

    def _loss(self, features: Tensor, targets: Targets, options: LossOptions) -> Tensor:
        parts = [
            self.weights[name] * head.loss(features, targets, **options.named())
            for name, head in self._named()
        ]
        return torch.stack(parts).sum(0)

    def _check_features(self, features: Tensor) -> None:
        for _, head in self._named():
            head._check_features(features)

    def _dtype(self, features: Tensor) -> torch.dtype:
        return compute_dtype(features)

    def extra_repr(self) -> str:
        """The weights."""
        return f"{super().extra_repr()}, weights={self.weights}"
