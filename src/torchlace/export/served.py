"""From images to scores and probabilities in one module of plain layers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from torchlace.heads import Folded, Head
from torchlace.models import Classifier


class Served(nn.Module):
    """A classifier as it is served: prepares images, gives scores and calibrated probabilities.

    The head is folded into plain layers; one that has no such form is taken as it is. Everything
    is a copy on the CPU, in evaluation mode.

    Args:
        model: a trained classifier.
        prepare: the transform of evaluation, such as :class:`torchlace.data.Prepare`; None for
            images that are prepared already.

    Example:
        >>> from torchlace.data import Prepare
        >>> model = Classifier("small-cnn", num_classes=10, channels=1)
        >>> served = Served(model, Prepare([0.5], [0.25]))
        >>> scores, probabilities = served(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
        >>> scores.shape, probabilities.shape
        (torch.Size([2, 10]), torch.Size([2, 10]))
    """

    def __init__(
        self, model: Classifier, prepare: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        self.prepare = prepare
        self.backbone = model.backbone
        self.head = _plain(model.head)
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and probabilities, (N, C) each."""
        if self.prepare is not None:
            images = self.prepare(images)
        scores: Tensor = self.head(self.backbone(images))
        return scores, torch.softmax(scores / self.head.temperature, dim=1)


def _plain(head: Head) -> Folded | Head:
    try:
        return head.fold().requires_grad_(False)
    except ValueError:
        return head
