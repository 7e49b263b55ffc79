"""Runs what is missing of a grid, on any engine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from torchlace._reporter import Reporter
from torchlace._text import setting
from torchlace.data import KNOWN, load_data, whole_source
from torchlace.experiments.cells import State, Task, duration, grid_status, reason, task_state
from torchlace.experiments.engines import Engine, Handle
from torchlace.experiments.process import STOPPED
from torchlace.runs import Lock, Run
from torchlace.runs.files import CLAIM

_PAUSE = 0.1


@dataclass
class Outcome:
    """What running a grid has come to; names of cells.

    Attributes:
        ran: finished now.
        failed: and why.
        elsewhere: at work in another process.
        interrupted: whether it was asked to stop.
    """

    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)
    interrupted: bool = False


def run_grid(
    tasks: Sequence[Task],
    runs: Path | str,
    engine: Engine,
    *,
    retry_failed: bool = False,
    reporter: Reporter | None = None,
) -> Outcome:
    """Run all cells that are not finished; killed ones go on where they were.

    SIGINT and SIGTERM let every cell finish its epoch and write its checkpoint; a second one ends
    them at once. The same call again goes on.

    Args:
        tasks: the cells.
        runs: folder of the run directories.
        engine: see :func:`torchlace.experiments.make_engine`.
        retry_failed: run those again that failed before.
        reporter: told of every cell that starts or ends.
    """
    runs = Path(runs)
    engine.check([task for task in tasks if not task.complete(runs)])
    with engine, _stopping() as asked:
        return _Running(tasks, runs, engine, retry_failed, reporter or Reporter()).until(asked)


def require_same_data(tasks: Iterable[Task], runs: Path, *, closely: bool = False) -> None:
    """Raise if a run that was begun here learned from other data than the grid means.

    The name of a run holds a path as the grid has it, which leads elsewhere from another folder;
    and the files behind it may have been replaced. Known sets are taken at their word, and so are
    moved files that hold the same images, as long as nothing is left to train from them.

    Args:
        tasks: the runs that a grid needs.
        runs: folder of the run directories.
        closely: for who trains: read data that lie where they did, too, and compare the images.

    Example:
        >>> from torchlace.runs import TrainConfig
        >>> require_same_data([Task(TrainConfig(data="cifar10"))], Path("nowhere"))
    """

    @cache
    def digest(data: str, root: str | None, **options: Any) -> str:
        return load_data(data, root, **options).digest

    for task in tasks:
        run, config = Run(runs / task.name), task.config
        if whole_source(config.data) in KNOWN or not run.config_path.exists():
            continue
        there, here = run.config().data, config.placed().data
        moved = os.path.realpath(there) != os.path.realpath(here)
        if not (moved or closely):
            continue
        learned = (run.result("data_digest") if run.finished else run.facts())["data_digest"]
        # A training goes on from the path where it began only.
        left = closely and not task.complete(runs)
        # Files that differ in size get what they got then, as when the run is read.
        options: dict[str, Any] = {"mixed_size": tuple(run.facts()["size"])}
        options |= {"size": config.image_size, "skip_bad": config.skip_bad}
        if (moved and left) or digest(config.data, config.root, **options) != learned:
            other = f"{there}, and this grid means {here}"
            raise ValueError(
                f"{run.path} was trained on {other if moved else f'other images than {here} holds'}"
                f": choose another folder by {setting('runs')}, or remove that run to train it anew"
            )


@dataclass
class _Active:
    """A cell that this grid has claimed and started."""

    task: Task
    run: Run
    handle: Handle
    claim: Lock


@dataclass
class _Running:
    """A grid at work: the cells that wait, those that run here, those that run elsewhere."""

    tasks: Sequence[Task]
    runs: Path
    engine: Engine
    retry_failed: bool
    reporter: Reporter

    def __post_init__(self) -> None:
        self.waiting = deque(self.tasks)
        self.elsewhere: list[Task] = []
        self.active: list[_Active] = []
        self.outcome = Outcome()
        self.heard = 0

    def until(self, asked: Callable[[], int]) -> Outcome:
        """Start and collect cells until none is left."""
        try:
            while self.waiting or self.active or (not asked() and self._freed()):
                self._heed(asked())
                self._fill(asked)
                self.active = [each for each in self.active if not self._ended(each)]
                time.sleep(_PAUSE if self.active else 0)
        finally:
            for each in self.active:
                each.handle.kill()
                each.claim.release()
        self._freed()
        self.outcome.elsewhere = [task.name for task in self.elsewhere]
        self.outcome.interrupted = asked() > 0
        return self.outcome

    def _freed(self) -> bool:
        """Take up what others had taken and have ended, however; whether there is any."""
        states = [task_state(task, self.runs) for task in self.elsewhere]
        taken = [state is State.RUNNING for state in states]
        self.waiting.extend(t for t, still in zip(self.elsewhere, taken, strict=True) if not still)
        self.elsewhere = [t for t, still in zip(self.elsewhere, taken, strict=True) if still]
        return not all(taken)

    def _heed(self, asked: int) -> None:
        """Pass on that the grid was asked to stop."""
        if asked > self.heard:
            self.waiting.clear()
            for each in self.active:
                each.handle.kill() if asked > 1 else each.handle.interrupt()
            if asked == 1:
                alone = len(self.active) == 1
                left = "1 run finishes its" if alone else f"{len(self.active)} runs finish their"
                self.reporter.message(
                    f"stopping: {left} epoch; once more ends {'it' if alone else 'them'} now"
                )
        self.heard = asked

    def _fill(self, asked: Callable[[], int]) -> None:
        """Start cells as long as there is room."""
        slots = self.engine.slots
        while self.waiting and not asked() and (slots is None or len(self.active) < slots):
            task = self.waiting.popleft()
            run = Run(self.runs / task.name)
            if not self._wanted(run, task_state(task, self.runs)):
                continue
            claim = Lock(run.path, CLAIM)
            if not claim.acquire():
                self.elsewhere.append(task)
            # Another grid may have finished it between the two looks.
            elif not self._wanted(run, task_state(task, self.runs, claimed=True)):
                claim.release()
            else:
                run.failure_path.unlink(missing_ok=True)
                self.reporter.message(f"{task.name} {'goes on' if run.begun else 'starts'}")
                self.active.append(_Active(task, run, self.engine.start(task, run.path), claim))

    def _wanted(self, run: Run, state: State) -> bool:
        if state is State.FAILED and not self.retry_failed:
            self.outcome.failed[run.path.name] = run.failure()
            return False
        return state is not State.DONE

    def _ended(self, each: _Active) -> bool:
        """Whether a cell has ended; if so, it is accounted for."""
        code = each.handle.poll()
        if code is None:
            return False
        name, run = each.task.name, each.run
        if code not in (0, STOPPED) and not self.heard and not run.failure_path.exists():
            run.fail(_crash(code, run.log_path))
        each.claim.release()
        state = task_state(each.task, self.runs)
        if state is State.DONE:
            self.outcome.ran.append(name)
            result = run.result("seconds")
            said = f"{result['test_accuracy']:.2f} % in {result['seconds']:.0f} s"
            self.reporter.message(f"{name}: {said}; {self._progress()}")
        elif state is State.FAILED:
            self.outcome.failed[name] = run.failure()
            self.reporter.message(f"{name} failed: {reason(self.outcome.failed[name])}")
        else:
            self.reporter.message(f"{name} stopped")
        return True

    def _progress(self) -> str:
        status = grid_status(self.tasks, self.runs)
        text = f"{status.count(State.DONE)} of {len(self.tasks)} done"
        if status.seconds and self.engine.slots:
            text += f", about {duration(status.seconds / max(len(self.active), 1))} left"
        return text


def _crash(code: int, log: Path) -> str:
    end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    last = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return "\n".join([f"its process ended with {end}{hint}", "", *last])


@contextmanager
def _stopping() -> Iterator[Callable[[], int]]:
    """How often the process was asked to stop; SIGTERM counts, as clusters send it."""
    asked = 0

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
