"""What a run learns from and is judged by: images split, in batches, augmented."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

from torchlace._text import counted
from torchlace.data import KNOWN, load_data, protocol_transforms, stratified_split
from torchlace.runs.config import TrainConfig
from torchlace.runs.run import RunError, versions
from torchlace.training.batches import Augmentation, Batches
from torchlace.training.reporting import Reporter

# Early stopping counts epochs; of so few steps, ten are soon over.
_FEW_STEPS = 3


class Inputs:
    """The images of a run on its device.

    Attributes:
        data: all of them, with their classes.
        fit, held, test: batches to train on, to validate on and to test on.
        batch: size of a batch over all processes.
        augment, prepare: what happens to images in training and in evaluation.
    """

    def __init__(self, config: TrainConfig, fabric: Any, reporter: Reporter) -> None:
        self.data = load_data(
            config.data,
            Path(config.root) if config.root else None,
            size=config.image_size,
            mixed_size=config.mixed_size,
            skip_bad=config.skip_bad,
        )
        if config.data in KNOWN and Path(config.data).exists():
            reporter.message(
                f"note: {config.data} is the data set of that name; --data ./{config.data} is what "
                "lies here"
            )
        if config.mirror is not None:
            self.data = dataclasses.replace(self.data, mirror=config.mirror)
        if self.data.skipped:
            listed = "".join(f"\n  {each}" for each in self.data.skipped)
            count = counted(len(self.data.skipped), "unreadable image")
            reporter.message(f"left out {count}:{listed}")
        train, held = stratified_split(self.data.train.labels, config.validation, config.seed)
        if not len(held):
            raise RunError(
                f"{config.data} has too few training images to hold any out for validation: give "
                "every class three or more, or raise --validation"
            )
        if config.images is not None:
            train = train[_few(self.data.train.labels[train], config.images, config.seed)]
        device, rank, world = fabric.device, fabric.global_rank, fabric.world_size
        place = {"rank": rank, "world": world, "workers": config.workers}
        self.fit = Batches(self.data.train, train, device, **place)
        self.held = Batches(self.data.train, held, device, **place)
        self.test = Batches(self.data.test, torch.arange(len(self.data.test)), device, **place)
        self.batch = min(config.batch_size, len(self.fit))
        if self.batch < world:
            raise RunError(f"{len(self.fit)} training images are too few for {world} processes")
        if self.steps < _FEW_STEPS:
            reporter.message(
                f"note: an epoch is {counted(self.steps, 'step')} of {self.batch} images, which "
                "teaches little before patience ends; a smaller --batch-size makes more of them"
            )
        augment, self.prepare = protocol_transforms(config.protocol, self.data)
        self.augment = Augmentation(augment, device, self.batch, rank, world)

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return len(self.fit) // self.batch

    def loss_options(self, config: TrainConfig) -> dict[str, Any]:
        """What a head's loss is given beside features and labels."""
        options: dict[str, Any] = {"label_smoothing": config.label_smoothing}
        if config.class_weights == "balanced":
            counts = torch.bincount(self.fit.labels.cpu(), minlength=self.data.num_classes)
            weights = counts.sum() / (len(counts) * counts.clamp_min(1))
            options["weight"] = weights.to(self.fit.device)
        return options

    def facts(self) -> dict[str, Any]:
        """What a run directory says of the images, so that others can be prepared alike."""
        return {
            "class_names": list(self.data.class_names),
            "channels": self.data.channels,
            "size": list(self.data.size),
            "mean": list(self.prepare.mean),
            "std": list(self.prepare.std),
            "data_digest": self.data.digest,
            "skipped": list(self.data.skipped),
            "versions": versions(),
        }


def _few(labels: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Indices of so many images, as many of each class as its share."""
    if not len(labels.unique()) <= count < len(labels):
        raise RunError(
            f"images={count} must be below the {len(labels):,} training images that there are, and "
            "leave one of every class"
        )
    return stratified_split(labels, count / len(labels), seed)[1]
