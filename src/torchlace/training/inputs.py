"""The images of a run: split for training, validation and testing, in batches, augmented."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlace._reporter import Reporter
from torchlace._text import counted, setting
from torchlace.data import (
    Augment,
    Images,
    MemoryImages,
    Mixing,
    data_names,
    image_batches,
    load_data,
    protocol_transforms,
    stratified_split,
)
from torchlace.functional.targets import Targets
from torchlace.runs import TrainConfig
from torchlace.runs.run import RunError, versions

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
        if config.data in data_names() and Path(config.data).exists():
            reporter.message(
                f"note: {config.data} is the data set of that name; "
                f"{setting('data', f'./{config.data}')} is what lies here"
            )
        if config.mirror is not None:
            self.data = dataclasses.replace(self.data, mirror=config.mirror)
        if self.data.resized:
            reporter.message(f"note: {self.data.resized}")
        if self.data.skipped:
            listed = "".join(f"\n  {each}" for each in self.data.skipped)
            count = counted(len(self.data.skipped), "unreadable image")
            reporter.message(f"left out {count}:{listed}")
        train, held = stratified_split(self.data.train.labels, config.validation, config.seed)
        if not len(held):
            raise RunError(
                f"{config.data} has too few training images to hold any out for validation: give "
                f"every class three or more, or raise {setting('validation')}"
            )
        if config.images is not None:
            train = train[_few(self.data.train.labels[train], config.images, config.seed)]
        device, rank, world = fabric.device, fabric.global_rank, fabric.world_size
        options = {"rank": rank, "world": world, "workers": config.workers}
        self.fit = Batches(self.data.train, train, device, **options)
        self.held = Batches(self.data.train, held, device, **options)
        self.test = Batches(self.data.test, torch.arange(len(self.data.test)), device, **options)
        self.place = (rank, world)

    def arrange(self, config: TrainConfig, reporter: Reporter) -> None:
        """Take the batch size and the protocol of the settings."""
        rank, world = self.place
        self.batch = min(config.batch_size, len(self.fit))
        if self.batch < world:
            raise RunError(f"{len(self.fit)} training images are too few for {world} processes")
        if self.steps < _FEW_STEPS:
            reporter.message(
                f"note: an epoch is {counted(self.steps, 'step')} of {self.batch} images, which "
                f"teaches little before patience ends; a smaller {setting('batch_size')} makes "
                "more of them"
            )
        augment, self.prepare = protocol_transforms(
            config.protocol, self.data, crop=config.crop, erase=config.erase
        )
        mixing = make_mixing(config)
        self.augment = Augmentation(augment, mixing, self.fit.device, self.batch, rank, world)

    @property
    def steps(self) -> int:
        """Steps in an epoch."""
        return len(self.fit) // self.batch

    def loss_options(self, config: TrainConfig) -> dict[str, Any]:
        """Options of the loss that follow from the settings: label smoothing and class weights."""
        options: dict[str, Any] = {"label_smoothing": config.label_smoothing}
        if config.class_weights == "balanced":
            counts = torch.bincount(self.fit.labels.cpu(), minlength=self.data.num_classes)
            weights = counts.sum() / (len(counts) * counts.clamp_min(1))
            options["weight"] = weights.to(self.fit.device)
        return options

    def facts(self) -> dict[str, Any]:
        """What config.yaml says of the images, so that others can be prepared alike."""
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


class Batches:
    """Training and evaluation batches of one set of images.

    A set that fits lies on the device as uint8; the order of an epoch follows from seed and epoch
    alone, and augmentation is drawn for the whole batch, so that every process sees its share of
    the batch that one process would see.
    """

    def __init__(
        self,
        images: Images,
        indices: Tensor,
        device: torch.device,
        *,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        self.images = images
        self.indices = indices
        self.device = device
        self.rank, self.world, self.workers = rank, world, workers
        self.labels = images.labels[indices].to(device)
        self.cached: Tensor | None = None
        if isinstance(images, MemoryImages) and fits(images.nbytes, device):
            self.cached = images.images[indices].to(device)

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, seed: int, epoch: int, batch: int) -> Tensor:
        """Positions of an epoch's samples, (steps, batch); an incomplete rest is left out."""
        generator = torch.Generator().manual_seed(mix(seed, epoch))
        order = torch.randperm(len(self), generator=generator)
        steps = len(self) // batch
        return order[: steps * batch].view(steps, batch)

    def training(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of every batch: uint8 images and labels on the device."""
        shares = order[:, share(order.shape[1], self.rank, self.world)]
        if self.cached is not None:
            for chosen in shares.to(self.device):
                yield self.cached[chosen], self.labels[chosen]
        else:
            for chosen, images in zip(shares, self._stream(list(shares)), strict=True):
                yield images, self.labels[chosen.to(self.device)]

    def evaluation(self, batch: int) -> Iterator[Tensor]:
        """All images in order, uint8, on the device."""
        if self.cached is not None:
            return iter(self.cached.split(batch))
        return self._stream(list(torch.arange(len(self)).split(batch)))

    def _stream(self, shares: list[Tensor]) -> Iterator[Tensor]:
        parts = [self.indices[chosen] for chosen in shares]
        return image_batches(self.images, parts, self.device, self.workers)


class Augmentation:
    """The training transforms, drawing for the whole batch and applying this process's share.

    Images are mixed with others of the share.
    """

    def __init__(
        self,
        augment: Augment,
        mixing: Mixing | None,
        device: torch.device,
        batch: int,
        rank: int,
        world: int,
    ) -> None:
        self.augment, self.mixing = augment, mixing
        self.batch, self.rank, self.world = batch, rank, world
        self.generator = torch.Generator(device)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Targets]:
        """Augmented, normalised images and what they are labelled with."""
        mine = share(self.batch, self.rank, self.world)
        targets: Targets = labels
        draws = self.augment.draw(self.batch, images.device, self.generator)
        images = self.augment(images, draws=draws[mine])
        if self.mixing is not None:
            draws = self.mixing.draw(self.batch, images.device, self.generator)
            images, targets = self.mixing(images, labels, draws[mine])
        fast = torch.channels_last if images.is_cuda else torch.contiguous_format
        return images.contiguous(memory_format=fast), targets

    def start_epoch(self, seed: int, epoch: int) -> None:
        """What is drawn follows from seed and epoch, so that a resumed run draws the same."""
        self.generator.manual_seed(mix(seed, epoch) + 1)


def make_mixing(config: TrainConfig) -> Mixing | None:
    """What mixes training images, if the settings ask for it."""
    mixing = Mixing(config.mixup, config.cutmix)
    return mixing if config.mixup or config.cutmix else None


def share(batch: int, rank: int, world: int) -> slice:
    """The share of a batch that one process takes; what can't be shared evenly is left out.

    Example:
        >>> [list(range(7))[share(7, rank, 2)] for rank in (0, 1)]
        [[0, 2, 4], [1, 3, 5]]
    """
    return slice(rank, batch - batch % world, world)


def fits(nbytes: int, device: torch.device) -> bool:
    """Whether so many bytes may lie on the device: a third of what a GPU has free."""
    if device.type != "cuda":
        return True
    return nbytes < torch.cuda.mem_get_info(device)[0] / 3


def mix(seed: int, epoch: int) -> int:
    """One number from two, far apart for neighbours."""
    return (seed * 1_000_003 + epoch * 7_919 + 12_345) % (2**63 - 1)
