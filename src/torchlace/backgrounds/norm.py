"""A background as a layer inside a network, the paper's last proposal."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchlace._checks import check_count
from torchlace._values import check_options
from torchlace.backgrounds.base import Background
from torchlace.backgrounds.estimated import Total


class BackgroundNorm(nn.Module):
    """Whitens channels by background statistics, next to where BatchNorm would stand.

    Args:
        num_features: channels of (N, d) or (N, d, ...) inputs.
        background: the background to use; by default :class:`Total` with the symmetric
            (Newton–Schulz) whitening, which keeps channels where they are.
        affine: scale and shift each channel afterwards, by learned amounts.
        device: as in torch layers.
        dtype: as in torch layers.
        **options: passed to the default background.

    Example:
        >>> BackgroundNorm(3)(torch.randn(8, 3, 4, 4)).shape
        torch.Size([8, 3, 4, 4])
    """

    def __init__(
        self,
        num_features: int,
        background: Background | None = None,
        *,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        num_features = check_count("num_features", num_features)
        if background is None:
            check_options(Total, options)
            options = {"method": "newton-schulz", "shrinkage": 0.1, **options}
            background = Total(num_features, device=device, dtype=dtype, **options)
        elif not isinstance(background, Background):
            raise TypeError(f"background must be a Background or None, got {background!r}")
        elif options:
            raise TypeError(f"options {sorted(options)} belong to the background: set them there")
        if background.per_class or background.needs_targets:
            raise ValueError(
                "a background inside a network sees no labels; use one that needs none"
            )
        if background.in_features != num_features or background.out_features != num_features:
            raise ValueError(
                f"the background maps {background.in_features} to {background.out_features} "
                f"features, but BackgroundNorm({num_features}) must keep {num_features}"
            )
        self.num_features = num_features
        self.background = background
        ones = torch.ones(num_features, device=device, dtype=dtype) if affine else None
        self.weight = None if ones is None else nn.Parameter(ones)
        self.bias = None if ones is None else nn.Parameter(torch.zeros_like(ones))

    def reset_parameters(self) -> None:
        """Start again: fresh statistics, no scale and no shift."""
        self.background.reset_parameters()
        if self.weight is not None and self.bias is not None:
            nn.init.ones_(self.weight)
            nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Whiten, keeping shape and type."""
        if features.dim() < 2 or features.shape[1] != self.num_features:
            raise ValueError(
                f"features must have shape (N, {self.num_features}, ...), got "
                f"{tuple(features.shape)}"
            )
        last = features.movedim(1, -1)
        whitened: Tensor = self.background(last.reshape(-1, self.num_features)).view(last.shape)
        if self.weight is not None and self.bias is not None:
            whitened = whitened * self.weight + self.bias
        whitened = whitened.movedim(-1, 1).to(features.dtype)
        # The layout that came, as batch normalisation leaves it: networks flatten with view.
        return whitened.contiguous() if features.is_contiguous() else whitened
