"""Whether the runs that are there were trained on the data that a grid names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from torchlace._text import setting
from torchlace.data import KNOWN, load_data
from torchlace.experiments.cells import Task
from torchlace.experiments.state import State, task_state
from torchlace.runs import Run


def require_same_data(tasks: Iterable[Task], runs: Path, *, closely: bool = False) -> None:
    """Raise if a run that was begun here learned from other data than the grid means.

    The name of a run holds a path as the grid has it, which leads elsewhere from another folder;
    and the files behind it may have been replaced. Known sets are taken at their word, and so are
    moved files that hold the same images, as long as nothing is left to train from them.

    Args:
        tasks: the runs that a grid needs.
        runs: folder of the run directories.
        closely: for who trains: read data that lie where they did, too, and compare the images.

    Raises:
        ValueError: with the run, what it was trained on, and what to do.

    Example:
        >>> from torchlace.runs import TrainConfig
        >>> require_same_data([Task(TrainConfig(data="cifar10"))], Path("nowhere"))
    """
    digest = cache(_digest)
    for task in tasks:
        run, config = Run(runs / task.name), task.config
        if config.data in KNOWN or not run.config_path.exists():
            continue
        there, here = run.config().data, config.placed().data
        moved = os.path.realpath(there) != os.path.realpath(here)
        learned = _learned_from(run) if moved or closely else None
        if learned is None:
            continue
        # A training goes on from the path where it began only.
        left = closely and task_state(task, runs) is not State.DONE
        options = (config.root, config.image_size, config.mixed_size, config.skip_bad)
        if (moved and left) or digest(config.data, *options) != learned:
            raise ValueError(_clash(run, there, here, moved=moved))


def _digest(
    data: str,
    root: str | None,
    size: int | None,
    mixed_size: tuple[int, int],
    skip_bad: bool,
) -> str:
    found = load_data(data, root, size=size, mixed_size=mixed_size, skip_bad=skip_bad)
    return found.digest


def _learned_from(run: Run) -> str:
    """The digest of a run's data."""
    said = run.result("data_digest") if run.finished else run.facts()
    return str(said["data_digest"])


def _clash(run: Run, there: str, here: str, *, moved: bool) -> str:
    found = f"{there}, and this grid means {here}" if moved else f"other images than {here} holds"
    return (
        f"{run.path} was trained on {found}: choose another folder by {setting('runs')}, or "
        "remove that run to train it anew"
    )
