"""Cells of a grid: one training each, named by what it trains."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlace._text import setting
from torchlace.data import KNOWN, MissingDataError, data_root
from torchlace.runs import TrainConfig

_NAMED = ("data", "backbone", "head", "protocol", "seed")


@dataclass(frozen=True)
class Task:
    """One run that a grid needs.

    Attributes:
        config: all that is needed to run it.
        inspect: whether its features are examined after training.
        embeddings: the pictures of its features that are needed, such as ``raw-tsne-3d``.
        archived: only committed results show it: it can't be run any more.
    """

    config: TrainConfig
    inspect: bool = False
    embeddings: tuple[str, ...] = ()
    archived: bool = False

    @property
    def name(self) -> str:
        """Name of its run directory."""
        return run_name(self.config)


@dataclass(frozen=True)
class Cell:
    """A run and its place in a table; several places may show the same run."""

    row: str
    column: str
    task: Task


def run_name(config: TrainConfig) -> str:
    """Name of the run directory, from what is trained and nothing else.

    Settings beyond data, backbone, head, protocol and seed appear where they differ from the
    defaults, followed by their digest. Where and how a run computes makes no difference.

    Example:
        >>> run_name(TrainConfig(data="cifar10", head="lace", device="cpu"))
        'cifar10-resnet18-lace-native-s0'
        >>> run_name(TrainConfig(data="cifar10", head="softmax", label_smoothing=0.1, seed=2))
        'cifar10-resnet18-softmax-native-label_smoothing-0.1-f8e6b6-s2'
    """
    plain = TrainConfig(**{name: getattr(config, name) for name in _NAMED})
    other = {name: value for name, (_, value) in plain.differences(config).items()}
    data = Path(config.data)
    if data.stem != config.data:
        other["data"] = config.data
    parts = [data.stem, config.backbone_name, config.head, config.protocol]
    if other:
        text = json.dumps(other, sort_keys=True, default=str)
        said = "-".join(f"{name}-{value}" for name, value in sorted(other.items()))
        parts += [said[:40], hashlib.sha256(text.encode()).hexdigest()[:6]]
    return re.sub(r"[^A-Za-z0-9._]+", "-", "-".join([*parts, f"s{config.seed}"]))


def canonical(config: TrainConfig) -> TrainConfig:
    """The same training with its backbone named, so that equal runs have equal settings.

    Example:
        >>> canonical(TrainConfig(data="cifar10")).backbone
        'resnet18'
    """
    return dataclasses.replace(config, backbone=config.backbone_name)


def read_config(values: dict[str, Any], where: str) -> TrainConfig:
    """Settings from plain values; whatever is wrong with them, the error says where.

    Example:
        >>> read_config({"epochs": 0}, "mine (lace, photos)")
        Traceback (most recent call last):
        ...
        ValueError: mine (lace, photos): epochs must be at least 1, got 0
    """
    try:
        return TrainConfig.from_dict(values, where)
    except (TypeError, ValueError) as error:
        if where in str(error):
            raise
        raise type(error)(f"{where}: {error}") from None


def unique_tasks(cells: Iterable[Cell]) -> list[Task]:
    """The runs behind cells, each once, with all that any cell needs of it.

    Example:
        >>> task = Task(TrainConfig())
        >>> [each.name for each in unique_tasks([Cell("a", "x", task), Cell("a", "y", task)])]
        ['digits-small-cnn-lace-native-s0']
    """
    tasks: dict[str, Task] = {}
    for cell in cells:
        known = tasks.setdefault(cell.task.name, cell.task)
        tasks[cell.task.name] = dataclasses.replace(
            known,
            inspect=known.inspect or cell.task.inspect,
            embeddings=tuple(sorted({*known.embeddings, *cell.task.embeddings})),
            archived=known.archived and cell.task.archived,
        )
    return list(tasks.values())


def require_data(tasks: Iterable[Task]) -> None:
    """Raise unless the images of all runs are on this machine.

    Example:
        >>> require_data([Task(TrainConfig(data="digits"))])
    """
    for config in (task.config for task in tasks):
        known = KNOWN.get(config.data)
        if known is None or known.pack is None:
            continue
        pack = data_root(config.root) / f"{known.pack}.npz"
        if not pack.is_file():
            raise MissingDataError(
                f"no {pack}: get it by `torchlace data fetch {known.pack}`, say where it is by "
                f"{setting('root')}, or leave it out by {setting('datasets')}"
            )


def require_layouts(tasks: Iterable[Task]) -> None:
    """Raise unless what lays out features as these runs need it is installed.

    Raises:
        ImportError: with what to install.

    Example:
        >>> require_layouts([Task(TrainConfig(), embeddings=("raw-pca-3d",))])
    """
    from torchlace.evaluation.layouts import require_method

    for method in {name.split("-")[1] for task in tasks for name in task.embeddings}:
        require_method(method)  # type: ignore[arg-type]  # checked when it was read
