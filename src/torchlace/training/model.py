"""The network of a run: built, checked against the images, and made ready to train."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from torchlace import heads
from torchlace._precision import evaluating
from torchlace._text import setting
from torchlace._torch import BatchNorm, is_compile_error
from torchlace.backgrounds import Running
from torchlace.models import Classifier
from torchlace.models.backbones import check_backbone
from torchlace.runs import RunError, TrainConfig, make_classifier
from torchlace.training.distributed import OneDevice
from torchlace.training.inputs import Inputs, make_mixing
from torchlace.training.optim import make_optimizer
from torchlace.training.step import Average, EagerStep, GraphStep


def build_model(config: TrainConfig, fabric: Any, inputs: Inputs, *, resumed: bool) -> Classifier:
    """The network on its device, as it starts; pretrained weights are not fetched to resume."""
    torch.manual_seed(config.seed)
    if resumed:
        config = dataclasses.replace(config, pretrained=False)
    data = inputs.data
    model = make_classifier(config, data.channels, max(data.size), data.num_classes)
    blank = torch.zeros(1, *data.train.shape, dtype=torch.uint8)
    check_takes(model, inputs.prepare(blank), config.backbone_name)
    if config.norm_batches:
        check_settles(model, config.backbone_name)
    model = model.to(fabric.device)
    if fabric.device.type == "cuda" and config.strategy != "fsdp":  # it wants plain strides
        model = model.to(memory_format=torch.channels_last)
    return model


def check_model(config: TrainConfig) -> None:
    """Refuse what can't be built by these settings, before any image is read."""
    check_backbone(config.backbone_name)
    make_mixing(config)
    heads.create(config.head, 64, 10, **config.head_options)


def check_takes(model: Classifier, images: Tensor, name: str) -> None:
    """Refuse a backbone that can't take images of this size, before anything is begun."""
    try:
        with evaluating(model), torch.no_grad():
            model.embed(images)
    except (RuntimeError, AssertionError, ValueError) as error:
        height, width = images.shape[-2:]
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{name} can't take images of {width} × {height} pixels ({reason}): use a larger "
            f"{setting('image_size')}, {setting('protocol', 'paper')}, or another "
            f"{setting('backbone')}"
        ) from error


def check_settles(model: Classifier, name: str) -> None:
    """Refuse a backbone without statistics that could be taken anew, before anything is begun."""
    parts = list(model.backbone.modules())
    if any(isinstance(part, Running) for part in parts):
        raise RunError(
            f"a BackgroundNorm would learn from the batches of {setting('norm_batches')} too: "
            "leave out one"
        )
    norms = (part for part in parts if isinstance(part, BatchNorm))
    if not any(part.track_running_stats for part in norms):
        raise RunError(f"{name} has no batch normalisation: leave out {setting('norm_batches')}")


class Assembly:
    """A model made ready to train.

    Attributes:
        model: the network itself; strategies may have changed it.
        wrapped: what is called in training.
        optimizer: of its parameters.
        average: of the weights, or None.
        graphed: whether the step is replayed as a CUDA graph.
    """

    def __init__(self, config: TrainConfig, fabric: Any, inputs: Inputs, model: Classifier) -> None:
        self._config, self._fabric, self._inputs = config, fabric, inputs
        device = fabric.device
        alone = isinstance(fabric, OneDevice)
        cached = inputs.fit.cached is not None
        self.graphed = config.graph and device.type == "cuda" and alone and cached
        if not alone and fabric.world_size > 1 and device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.model: nn.Module = model
        self.wrapped: Any = model
        # Before a strategy flattens them.
        decayed = [name for name, each in model.named_parameters() if each.dim() > 1]
        if not alone:
            self.wrapped = fabric.setup_module(model)
            self.wrapped.mark_forward_method("loss")
        # Strategies that spread the model put other parameters in the place of the first ones.
        optimizer = make_optimizer(config, self.model, decayed, device, capturable=self.graphed)
        self.optimizer: Any = optimizer if alone else fabric.setup_optimizers(optimizer)
        self.average = copy.deepcopy(self.model).eval() if config.ema is not None else None

    @property
    def evaluated(self) -> nn.Module:
        """What is validated, kept and tested."""
        return self.model if self.average is None else self.average

    def step(self) -> EagerStep | GraphStep:
        """What learns from a batch, from the weights as they are now."""
        config, fabric, inputs = self._config, self._fabric, self._inputs
        mean = None
        if self.average is not None and config.ema is not None:
            mean = Average(self.model, self.average, config.ema)
        self.model.train()
        inputs.augment.start_epoch(config.seed, 0)
        if config.compile:
            self.model.backbone.compile()  # type: ignore[union-attr]
        options = inputs.loss_options(config)
        if not self.graphed:
            return EagerStep(
                fabric, self.wrapped, self.optimizer, inputs.augment, options, config.clip, mean
            )
        assert inputs.fit.cached is not None
        try:
            with compiling(config):
                return GraphStep(
                    self.model,
                    self.optimizer,
                    fabric.autocast,
                    inputs.augment,
                    options,
                    config.clip,
                    mean,
                    inputs.fit.cached,
                    inputs.fit.labels,
                    inputs.batch,
                    compiled=config.compile,
                )
        except RuntimeError as error:
            raise RunError(
                f"the training step could not be captured as a CUDA graph: {error}. Start again "
                f"with {setting('graph', False)}"
            ) from error


@contextmanager
def compiling(config: TrainConfig) -> Iterator[None]:
    """Say it plainly where the backbone, if it is to be compiled, can't be."""
    try:
        yield
    except RuntimeError as error:
        if not (config.compile and is_compile_error(error)):
            raise
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{config.backbone_name} can't be compiled here ({reason}): start again with "
            f"{setting('compile', False)}"
        ) from error
