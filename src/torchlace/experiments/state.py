"""What has become of a cell, read from its run directory alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from pathlib import Path

from torchlace.experiments.cells import Task
from torchlace.runs import Run, held


class State(StrEnum):
    """Of a cell.

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
    """What has become of a run that a grid needs; ``claimed``: by the one who asks.

    Example:
        >>> from torchlace.runs import TrainConfig
        >>> task_state(Task(TrainConfig(seed=7)), Path("nowhere")).value
        'missing'
    """
    run = Run(runs / task.name)
    if _complete(task, run):
        return State.DONE
    if not claimed and held(run.path):
        return State.RUNNING
    if run.failure_path.exists():
        return State.FAILED
    return State.CUT if run.config_path.exists() else State.MISSING


def grid_status(tasks: Sequence[Task], runs: Path) -> Status:
    """State of every run, and an estimate of the time left from those that are finished.

    Example:
        >>> from torchlace.runs import TrainConfig
        >>> status = grid_status([Task(TrainConfig(seed=7))], Path("nowhere"))
        >>> status.count(State.MISSING), status.seconds
        (1, None)
    """
    states = {task.name: task_state(task, runs) for task in tasks}
    took: dict[str, float] = {
        task.name: float(Run(runs / task.name).result("seconds")["seconds"])
        for task in tasks
        if states[task.name] is State.DONE
    }
    left = 0.0
    for task in tasks:
        if states[task.name] in (State.RUNNING, State.CUT, State.MISSING):
            whole = _expected(task, took)
            if whole is None:
                return Status(states, None)
            left += _left(task, runs / task.name, whole)
    return Status(states, left)


def longest_first(tasks: Sequence[Task], took: Mapping[str, float]) -> list[Task]:
    """The runs in the order in which several at a time end soonest: long ones don't come last.

    Args:
        tasks: the runs.
        took: seconds of finished runs by their names, of these or of others like them.

    Example:
        >>> from torchlace.runs import TrainConfig
        >>> tasks = [Task(TrainConfig(head=head)) for head in ("softmax", "lace")]
        >>> took = {"digits-small-cnn-lace-native-s1": 9, "digits-small-cnn-softmax-native-s1": 4}
        >>> [task.config.head for task in longest_first(tasks, took)]
        ['lace', 'softmax']
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


def _complete(task: Task, run: Run) -> bool:
    needed = [run.result_path]
    needed += [run.evaluation_path] if task.inspect else []
    needed += [run.embeddings_path] if task.embeddings else []
    if not all(file.exists() for file in needed):
        return False
    return not task.embeddings or set(task.embeddings) <= set(run.read_json(run.embeddings_path))


def _expected(task: Task, took: Mapping[str, float]) -> float | None:
    """The mean of the finished runs that are most like this one, going by their names."""
    config = task.config
    images = f"{Path(config.data).stem}-{config.backbone_name}-"
    head = f"-{config.backbone_name}-{config.head}-{config.protocol}-"
    alike: list[Callable[[str], bool]] = [
        lambda name: name.startswith(images) and head in name,
        lambda name: name.startswith(images),
        lambda name: head in name,
        lambda name: True,
    ]
    for like in alike:
        seconds = [each for name, each in took.items() if like(name)]
        if seconds:
            return statistics.fmean(seconds)
    return None


def _left(task: Task, path: Path, whole: float) -> float:
    """Seconds until a run ends that is expected to take ``whole``.

    Those that end first are the short ones, so that the others outlast what is expected by them:
    none ends before its patience does.
    """
    rows, config = Run(path).epochs(), task.config
    if not rows:
        return whole
    spent, losses = float(rows[-1]["seconds"]), [float(row["val_loss"]) for row in rows]
    stale = len(losses) - 1 - losses.index(min(losses))
    epochs = max(min(config.patience - stale, config.epochs - len(rows)), 0)
    return max(whole - spent, epochs * spent / len(rows))
