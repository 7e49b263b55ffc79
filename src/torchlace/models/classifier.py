"""Backbone and head in one module that owns all weights."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor, nn

from torchlace import heads
from torchlace._checks import check_count
from torchlace._precision import evaluating
from torchlace.heads import Head, Mixed
from torchlace.models.backbones import create_backbone


class Classifier(nn.Module):
    """A backbone and a head: one ``state_dict``, one ``parameters()``, nothing to forget.

    Args:
        backbone: a name (see :func:`create_backbone`), or a module from images to features.
        head: a name of :func:`torchlace.heads.names`, or a head.
        num_classes: number of classes; not needed where ``head`` is one.
        num_features: width of the features; not needed where the backbone has an attribute of
            this name, or where ``head`` is a head.
        head_options: passed to the head where it is a name.
        **options: ``channels``, ``stem``, ``pretrained``, ``embedding`` and ``background_norm``,
            passed to the backbone where it is a name.

    Attributes:
        made_from: the arguments above, where backbone and head are names; else None. Another
            classifier made from them takes the weights of this one.

    Example:
        >>> model = Classifier("resnet18", head="lace", num_classes=10, stem="small")
        >>> model.eval()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
        >>> Classifier(nn.Flatten(), "lace", num_classes=10, num_features=64).num_classes
        10
    """

    def __init__(
        self,
        backbone: str | nn.Module,
        head: str | Head = "lace",
        num_classes: int | None = None,
        *,
        num_features: int | None = None,
        head_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.made_from: dict[str, Any] | None = None
        if isinstance(backbone, str) and isinstance(head, str):
            self.made_from = {"backbone": backbone, "head": head, "num_classes": num_classes}
            self.made_from |= {"head_options": dict(head_options or {}), **options}
        if isinstance(backbone, str):
            self.backbone: nn.Module = create_backbone(backbone, **options)
        elif options:
            raise TypeError(f"{sorted(options)} go with a backbone's name, not with a module")
        else:
            self.backbone = backbone
        known = getattr(self.backbone, "num_features", None)
        width = known if num_features is None else check_count("num_features", num_features)
        if isinstance(head, str):
            if num_classes is None:
                raise TypeError("num_classes is needed to make a head by name")
            if not isinstance(width, int):
                raise TypeError(
                    f"{type(self.backbone).__name__} has no integer num_features, which would say "
                    f'how wide its features are: give it, Classifier(module, "{head}", '
                    "num_classes=10, num_features=512)"
                )
            head = heads.create(head, width, num_classes, **(head_options or {}))
        elif head_options or num_classes not in (None, head.num_classes):
            raise TypeError("num_classes and head_options go with a head's name, not with a head")
        if isinstance(known, int) and head.in_features != known:
            raise ValueError(
                f"the backbone gives {known} features, the head takes {head.in_features}"
            )
        if num_features not in (None, head.in_features):
            raise ValueError(f"num_features is {num_features}, the head takes {head.in_features}")
        self.head = head

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.head.num_classes

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (N, C)."""
        logits: Tensor = self.head(self.backbone(images))
        return logits

    def loss(self, images: Tensor, targets: Tensor | Mixed, **options: Any) -> Tensor:
        """The head's training loss; options as in :meth:`Head.loss`."""
        return self.head.loss(self.backbone(images), targets, **options)

    def embed(self, images: Tensor) -> Tensor:
        """Features, (N, d)."""
        features: Tensor = self.backbone(images)
        return features

    def outputs(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Features, (N, d), and logits, (N, C)."""
        features = self.embed(images)
        return features, self.head(features)

    def probabilities(self, images: Tensor) -> Tensor:
        """Class probabilities at the fitted temperature, (N, C)."""
        return self.head.probabilities(self.backbone(images))

    def predict(self, images: Tensor) -> Tensor:
        """The class of every image, (N,)."""
        return self.head.predict(self.backbone(images))

    def calibrate(self, images: Tensor, targets: Tensor) -> Self:
        """Fit the temperature on held-out images; decisions don't change."""
        with evaluating(self), torch.no_grad():
            self.head.calibrate(self.backbone(images), targets)
        return self
