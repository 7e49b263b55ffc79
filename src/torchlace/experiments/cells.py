"""The runs that a grid needs: what they train, their names, and what has become of each.

Nothing heavy is imported above: a process is handed its run before it imports torch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from torchlace.runs import Run, TrainConfig, held

_NAMED = ("data", "backbone", "head", "protocol", "seed")


@dataclass(frozen=True)
class Task:
    """One run that a grid needs.

    Attributes:
        config: all that is needed to run it.
        inspect: whether its features are examined after training.
        embeddings: the pictures of its features that are needed, such as ``raw-tsne-3d``.
        unknown: data sets of other classes that its test images are told from.
        later: how many of the other classes come at a time, and who learns them: ``10.fecam``.
        archived: only committed results show it: it can't be run any more.
    """

    config: TrainConfig
    inspect: bool = False
    embeddings: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    archived: bool = False

    @cached_property
    def name(self) -> str:
        """Name of its run directory."""
        return run_name(self.config)

    def seeded(self, seed: int) -> Task:
        """The same with another seed, which ``{seed}`` in the name of the data stands for."""
        data = self.config.data.replace("{seed}", str(seed))
        return dataclasses.replace(
            self, config=dataclasses.replace(self.config, seed=seed, data=data)
        )

    def tells(self, later: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether these scores of classes that come later are all that are needed."""
        return {*self.later} <= {f"{size}.{name}" for size in later for name in later[size]}

    def complete(self, runs: Path) -> bool:
        """Whether its run directory holds everything that is needed of it."""
        run = Run(runs / self.name)
        needed = [run.result_path]
        needed += [run.evaluation_path] if self.inspect else []
        needed += [run.embeddings_path] if self.embeddings else []
        needed += [run.unknown_path] if self.unknown else []
        needed += [run.later_path] if self.later else []
        if not all(file.exists() for file in needed):
            return False
        if self.unknown:
            scores = run.read_json(run.unknown_path)["scores"].values()
            if not all({*self.unknown} <= {*sets} for sets in scores):
                return False
        if self.later and not self.tells(run.read_json(run.later_path)["scores"]):
            return False
        return not self.embeddings or {*self.embeddings} <= {*run.read_json(run.embeddings_path)}


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


def read_config(values: dict[str, Any], where: str) -> TrainConfig:
    """Settings from plain values; whatever is wrong with them, the error says where."""
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
        name = cell.task.name
        known = tasks.setdefault(name, cell.task)
        tasks[name] = dataclasses.replace(
            known,
            inspect=known.inspect or cell.task.inspect,
            embeddings=tuple(sorted({*known.embeddings, *cell.task.embeddings})),
            unknown=tuple(sorted({*known.unknown, *cell.task.unknown})),
            later=tuple(sorted({*known.later, *cell.task.later})),
            archived=known.archived and cell.task.archived,
        )
    return list(tasks.values())


class State(StrEnum):
    """Of a cell, read from its run directory alone.

    ``cut``: begun and neither finished nor at work, because it was stopped or killed; it goes on.
    """

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    CUT = "cut"
    MISSING = "missing"


@dataclass(frozen=True)
class Status:
    """Of a grid: the cells in each state, and the seconds of training that are left.

    ``seconds`` is None as long as no finished cell says how long one takes.
    """

    states: dict[str, State]
    seconds: float | None

    def count(self, state: State) -> int:
        """How many cells are in a state."""
        return sum(each is state for each in self.states.values())


def task_state(task: Task, runs: Path, *, claimed: bool = False) -> State:
    """What has become of a run that a grid needs; ``claimed``: by the one who asks."""
    run = Run(runs / task.name)
    if task.complete(runs):
        return State.DONE
    if not claimed and held(run.path):
        return State.RUNNING
    if run.failure_path.exists():
        return State.FAILED
    return State.CUT if run.config_path.exists() else State.MISSING


def grid_status(tasks: Sequence[Task], runs: Path) -> Status:
    """State of every run, and an estimate of the time left from those that are finished.

    Example:
        >>> status = grid_status([Task(TrainConfig(seed=7))], Path("nowhere"))
        >>> status.count(State.MISSING), status.seconds
        (1, None)
    """
    states = {task.name: task_state(task, runs) for task in tasks}
    took = {
        name: float(Run(runs / name).result("seconds")["seconds"])
        for name, state in states.items()
        if state is State.DONE
    }
    open_states = (State.RUNNING, State.CUT, State.MISSING)
    left = [_left(task, runs, took) for task in tasks if states[task.name] in open_states]
    # Every finished cell says something of any other: all are known, or none is.
    return Status(states, None if None in left else sum(filter(None, left)))


def longest_first(tasks: Sequence[Task], took: Mapping[str, float]) -> list[Task]:
    """The runs in the order in which several at a time end soonest: long ones don't come last.

    ``took`` has the seconds of finished runs by their names, of these or of others like them.
    """
    return sorted(tasks, key=lambda task: -(_expected(task, took) or 0.0))


def reason(text: str) -> str:
    r"""Why a run failed, in a line: the first of the text and those that it lists indented.

    Example:
        >>> reason("2 images can't be used:\n  a.png: empty\n  b.png: cut off\nthe log")
        "2 images can't be used: a.png: empty; b.png: cut off"
    """
    first, *others = text.splitlines() or [""]
    listed = takewhile(lambda line: line.startswith("  "), others)
    return " ".join([first, "; ".join(line.strip() for line in listed)]).strip()


def duration(seconds: float) -> str:
    """A time that people can read."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _expected(task: Task, took: Mapping[str, float]) -> float | None:
    """The mean of the finished runs that are most like this one, going by their names."""
    config = task.config
    images = f"{Path(config.data).stem}-{config.backbone_name}-"
    head = f"-{config.backbone_name}-{config.head}-{config.protocol}-"
    same_images = {name: each for name, each in took.items() if name.startswith(images)}
    same_head = {name: each for name, each in took.items() if head in name}
    both = {name: each for name, each in same_images.items() if name in same_head}
    alike = both or same_images or same_head or took
    return statistics.fmean(alike.values()) if alike else None


def _left(task: Task, runs: Path, took: Mapping[str, float]) -> float | None:
    """Seconds until a run ends.

    Those that end first are the short ones, so that the others outlast what is expected by them:
    none ends before its patience does.
    """
    whole = _expected(task, took)
    rows, config = Run(runs / task.name).epochs(), task.config
    if whole is None or not rows:
        return whole
    spent, losses = float(rows[-1]["seconds"]), [float(row["val_loss"]) for row in rows]
    stale = len(losses) - 1 - losses.index(min(losses))
    epochs = max(min(config.patience - stale, config.epochs - len(rows)), 0)
    return max(whole - spent, epochs * spent / len(rows))
