"""From images to features and logits: the one way to every final figure of a trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchlace._checks import checks
from torchlace._precision import evaluating, full_precision
from torchlace.heads import Head
from torchlace.models.classifier import Classifier

BATCH = 512


class Prediction(NamedTuple):
    """What a model says of images."""

    features: Tensor
    """What the head was given, (N, d)."""
    logits: Tensor
    """(N, C), before the temperature."""


@torch.no_grad()
def predict(
    model: nn.Module,
    batches: Iterable[Tensor],
    prepare: Callable[[Tensor], Tensor] | None = None,
    *,
    autocast: Callable[[], AbstractContextManager[object]] | None = None,
) -> Prediction:
    """Features and logits of images, in the precision of the model's own weights.

    All final figures of a run are computed here, so that every command shows the same ones: in
    evaluation mode, without autocast and, on CUDA, without TF32. The same images in other batches
    may differ in the last digits.

    Args:
        model: a classifier, which takes images; or a head, which takes features.
        batches: images or features, a batch after the other, on any device.
        prepare: the transform of evaluation, where the images are not prepared yet.
        autocast: makes the context to compute in instead, as training does for speed.

    Returns:
        Features and logits on the model's device, in its precision and at least fp32.

    Example:
        >>> model = Classifier("small-cnn", num_classes=10, channels=1)
        >>> found = predict(model, torch.zeros(5, 1, 8, 8).split(2))
        >>> found.features.shape, found.logits.shape
        (torch.Size([5, 64]), torch.Size([5, 10]))
    """
    place = next(model.parameters())
    features, logits = [], []
    with evaluating(model), checks(False):
        for batch in batches:
            inputs = batch.to(place.device)
            inputs = (inputs if prepare is None else prepare(inputs)).to(place.dtype)
            if place.is_cuda and inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            with autocast() if autocast else _exactly(place):
                seen, said = _outputs(model, inputs)
            wide = torch.promote_types(place.dtype, torch.float32)
            features.append(seen.to(wide))
            logits.append(said.to(wide))
    if not features:
        raise ValueError("there are no images to predict: give one batch or more")
    return Prediction(torch.cat(features), torch.cat(logits))


def _outputs(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(model, Head):
        return inputs, model(inputs)
    if isinstance(model, Classifier):
        return model.outputs(inputs)
    raise TypeError(
        f"{type(model).__name__} is neither a torchlace.Classifier nor a head: make one of it, "
        "tl.Classifier(backbone, head=...)"
    )


@contextmanager
def _exactly(place: Tensor) -> Iterator[None]:
    """A block without autocast and, on CUDA, without TF32."""
    exact: AbstractContextManager[object] = nullcontext()
    if place.is_cuda:
        exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with full_precision(place), exact:
        yield
