"""Settings that were left open, chosen by the images and the device, and what a run begins with."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from torchlace._checks import checks
from torchlace._text import counted, listed, setting
from torchlace._values import check_choice
from torchlace.data import data_names
from torchlace.models import Classifier
from torchlace.runs import Run, TrainConfig
from torchlace.runs.recipes import read_recipe
from torchlace.training.distributed import OneDevice
from torchlace.training.inputs import Inputs

# What can be left open.
OPEN = (
    *("backbone", "pretrained", "batch_size", "epochs", "schedule", "lr", "patience"),
    *("crop", "cutmix", "optimizer", "weight_decay", "weights"),
)
# How a network learns that starts from nothing.
_RECIPE = "strong"
# A CPU takes no longer for more and smaller batches.
_FEWEST_STEPS, _SMALLEST_BATCH, _LARGEST_ON_CPU = 16, 8, 256
# Seconds that all epochs may take on a CPU.
_SECONDS = 180
# Epochs on a GPU, and bounds of those on a CPU; so many steps teach enough, whatever they take.
_EPOCHS, _FEWEST_EPOCHS, _MOST_EPOCHS, _STEPS = 60, 20, 100, 1600
# The peak of a one-cycle of Adam, where Adam is asked for.
_PEAK = 3e-3
# A step of so many images says as much on a CPU as one of all of a batch.
_MEASURED, _LONG = 32, 0.5


def left_open(
    config: TrainConfig, run: Run, choose: Collection[str], overwrite: bool
) -> tuple[TrainConfig, tuple[str, ...]]:
    """The settings of a run, and which of them are to be chosen yet.

    What a begun run has chosen stays. Nothing is chosen for data sets with a name, nor in the
    ``paper`` protocol: their settings are the paper's.
    """
    for name in choose:
        check_choice("setting to choose", name, OPEN)
    if config.data in data_names() or config.protocol == "paper":
        return config, ()
    if run.config_path.exists() and not overwrite:
        there = run.config()
        return dataclasses.replace(config, **{name: getattr(there, name) for name in choose}), ()
    return config, tuple(choose)


def choose_network(config: TrainConfig, choose: Collection[str], inputs: Inputs) -> TrainConfig:
    """The settings with a batch, a backbone and a schedule that suit the images and the device."""
    chosen: dict[str, Any] = {}
    on_gpu = inputs.fit.device.type == "cuda"
    if "backbone" in choose:
        # small-cnn has neither weights nor batch normalisation.
        more = config.pretrained or config.background_norm or config.norm_batches
        chosen["backbone"] = "resnet18" if on_gpu or more else "small-cnn"
        if "pretrained" in choose and on_gpu:
            chosen["pretrained"] = weights_here("resnet18")
    fresh = not chosen.get("pretrained", config.pretrained)
    # The rate and the decay of a recipe are for its optimiser, which takes whole matrices.
    whole = {"backbone", "optimizer"} <= {*choose} and config.strategy != "fsdp"
    by_recipe, size = "schedule" not in choose, config.batch_size
    if fresh and whole:
        recipe, by_recipe = read_recipe(_RECIPE), True
        chosen |= {name: recipe[name] for name in choose if name in recipe}
        size = recipe["batch_size"]
    elif "schedule" in choose:
        chosen["schedule"] = "one-cycle"
        if "lr" in choose and fresh and config.optimizer in ("adam", "adamw"):
            chosen["lr"] = _PEAK
    config = dataclasses.replace(config, **chosen)
    batch, lr = config.batch_size, config.lr
    if "batch_size" in choose:
        batch = batch_for(len(inputs.fit), batch if on_gpu else min(batch, _LARGEST_ON_CPU))
    if by_recipe and "lr" in choose:
        # For batches of its size: SGD's goes with them, others' with the square root.
        lr *= batch / size if config.optimizer == "sgd" else (batch / size) ** 0.5
    return dataclasses.replace(config, batch_size=batch, lr=lr)


def choose_epochs(
    config: TrainConfig, choose: Collection[str], fabric: Any, inputs: Inputs, model: Classifier
) -> tuple[TrainConfig, float | None]:
    """The settings with as many epochs as a CPU has time for, and the seconds that one will take.

    Where nobody asks, nothing is measured. A chosen schedule comes to its end: its best epochs are
    the last ones, which patience would not wait for.
    """
    seconds, epochs = None, config.epochs
    if "epochs" in choose:
        epochs = _EPOCHS
        if inputs.fit.device.type != "cuda":
            seconds = epoch_seconds(model, fabric, inputs)
        if seconds is not None:
            epochs = epochs_for(seconds, inputs.steps)
    patience = config.patience
    if {"schedule", "patience"} <= {*choose}:
        patience = max(patience, epochs)
    return dataclasses.replace(config, epochs=epochs, patience=patience), seconds


def batch_for(images: int, most: int) -> int:
    """How many images a step takes: ``most``, or a power of two that makes 16 steps an epoch.

    Example:
        >>> batch_for(100, 256), batch_for(432, 256), batch_for(50_000, 256)
        (8, 16, 256)
    """
    steps = max(images // _FEWEST_STEPS, 1)
    return min(max(1 << (steps.bit_length() - 1), _SMALLEST_BATCH), most)


def weights_here(name: str) -> bool:
    """Whether torchvision's weights of a network are on disk, so that nothing is fetched."""
    from torchvision.models import get_model_weights

    file = Path(urlsplit(get_model_weights(name)["DEFAULT"].url).path).name
    return (Path(torch.hub.get_dir()) / "checkpoints" / file).is_file()


def epochs_for(seconds: float, steps: int) -> int:
    """How many epochs of so many seconds and steps to train for: three minutes, at most 100 epochs.

    They are 1,600 steps at least, in 20 to 60 epochs, however long that takes.

    Example:
        >>> epochs_for(0.1, 27), epochs_for(2.5, 27), epochs_for(60, 27), epochs_for(60, 195)
        (100, 70, 59, 20)
    """
    fewest = min(max(_STEPS // steps, _FEWEST_EPOCHS), _EPOCHS)
    return max(fewest, min(int(_SECONDS / seconds) // 10 * 10, _MOST_EPOCHS))


def epoch_seconds(model: Classifier, fabric: Any, inputs: Inputs) -> float | None:
    """How long an epoch will take, by a few steps of a copy of the model; None if it can't be told.

    Neither the model nor any random number of the training is touched.
    """
    if not isinstance(fabric, OneDevice):
        return None
    device = fabric.device
    try:
        trial = copy.deepcopy(model).train()
    except (RuntimeError, TypeError):  # a network of the user's own that can't be copied
        return None
    cuda = [device] if device.type == "cuda" else []
    count = inputs.batch if cuda else min(inputs.batch, _MEASURED)
    images, labels = next(inputs.fit.training(torch.arange(count)[None]))
    augment = inputs.augment.augment
    generator = torch.Generator(device).manual_seed(0)
    optimizer = torch.optim.Adam(trial.parameters(), 1e-6)
    taken: list[float] = []
    with torch.random.fork_rng(cuda), checks(False):
        while len(taken) < 2 or (len(taken) < 5 and sum(taken) < _LONG):
            start = time.perf_counter()
            with fabric.autocast():
                draws = augment.draw(count, device, generator)
                loss = trial.loss(augment(images, draws=draws), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()  # waits for the device
            taken.append(time.perf_counter() - start)
    # The first step prepares much that later ones find ready; validation has no way back.
    each = min(taken[1:]) / count
    return each * (inputs.steps * inputs.batch + len(inputs.held) / 3)


def beginning(
    config: TrainConfig,
    fabric: Any,
    inputs: Inputs,
    model: Classifier,
    choose: Collection[str],
    seconds: float | None,
) -> dict[str, str]:
    """What a training is about to do, in a few lines: a name and what is to be said of it.

    Args:
        config: its settings, nothing left open.
        fabric: where it computes.
        inputs: its images.
        model: its network.
        choose: the settings that were chosen for the user.
        seconds: that an epoch takes, if they have been measured already.
    """
    if seconds is None:
        seconds = epoch_seconds(model, fabric, inputs)
    data, device = inputs.data, inputs.fit.device
    counts = (len(inputs.fit), len(inputs.held), len(inputs.test))
    height, width = data.size
    parameters = sum(each.numel() for each in model.parameters())
    start = ", pretrained" if config.pretrained else ""
    where = f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    elif device.type != "cpu":
        where = device.type
    patience = ""
    if config.patience < config.epochs:
        patience = f" at most, fewer if {config.patience} bring no better validation loss"
    rows = {
        "images": "{:,} to train, {:,} to validate, {:,} to test".format(*counts),
        "classes": f"{data.num_classes}: {listed(data.class_names)}",
        "size": f"{width} × {height}, {'grey' if data.channels == 1 else 'colour'}",
        "network": f"{config.backbone_name}{start} and the head {config.head}, "
        f"{counted(parameters, 'parameter')}",
        "batch": f"{counted(inputs.batch, 'image')}, {counted(inputs.steps, 'step')} an epoch",
        "epochs": f"{config.epochs}{patience}, learning rate {config.lr:g}, {config.schedule}",
        "device": where,
    }
    if config.cutmix or config.mixup:
        rows["mixed"] = f"{config.cutmix + config.mixup:.0%} of the training images with others"
    if seconds is not None:
        epochs = counted(config.epochs, "epoch")
        rows["time"] = f"about {_spoken(config.epochs * seconds)} for {epochs}"
    if "backbone" in choose and config.backbone == "small-cnn":
        more = f"{setting('backbone', 'resnet18')} {setting('pretrained', True)}"
        rows["for more"] = f"{more}, best on a GPU (fetches weights)"
    return rows


def _spoken(seconds: float) -> str:
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(seconds, 1):.0f} s"
