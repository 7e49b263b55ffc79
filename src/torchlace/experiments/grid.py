"""Running what is missing of a grid, on any engine."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Protocol, Self

from torchlace.experiments.cells import Task
from torchlace.experiments.state import State, grid_status, reason, task_state
from torchlace.experiments.worker import STOPPED
from torchlace.runs import Lock, Run
from torchlace.runs.files import CLAIM

_PAUSE = 0.1


class Handle(Protocol):
    """A cell at work."""

    def poll(self) -> int | None:
        """The exit code, or None as long as it runs."""

    def interrupt(self) -> None:
        """Ask it to stop after this epoch."""

    def kill(self) -> None:
        """End it at once."""


class Engine(Protocol):
    """Where cells run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    @property
    def slots(self) -> int | None:
        """Cells at a time; None where the engine queues them itself."""

    def start(self, task: Task, path: Path) -> Handle:
        """Start a cell in its run directory."""


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
    report: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Run all cells that are not finished; killed ones go on where they were.

    SIGINT and SIGTERM let every cell finish its epoch and write its checkpoint; a second one ends
    them at once. The same call again goes on.

    Args:
        tasks: the cells.
        runs: folder of the run directories.
        engine: see :func:`torchlace.experiments.make_engine`.
        retry_failed: run those again that failed before.
        report: takes a line about every cell that starts or ends.
    """
    with engine, _stopping() as asked:
        return _Running(list(tasks), Path(runs), engine, retry_failed, report).until(asked)


@dataclass
class _Active:
    task: Task
    handle: Handle
    claim: Lock


class _Running:
    def __init__(
        self,
        tasks: list[Task],
        runs: Path,
        engine: Engine,
        retry_failed: bool,
        report: Callable[[str], None],
    ) -> None:
        self.tasks, self.runs, self.engine, self.report = tasks, runs, engine, report
        self.retry_failed = retry_failed
        self.waiting = deque(tasks)
        self.elsewhere: list[Task] = []
        self.active: list[_Active] = []
        self.outcome = Outcome()
        self.heard = 0

    def until(self, asked: Callable[[], int]) -> Outcome:
        """Start and collect cells until none is left."""
        try:
            while self.waiting or self.active or self._freed(asked):
                self._heed(asked())
                self._fill(asked)
                self.active = [each for each in self.active if not self._ended(each)]
                time.sleep(_PAUSE if self.active else 0)
        finally:
            for each in self.active:
                each.handle.kill()
                each.claim.release()
        self.outcome.elsewhere = [
            task.name for task in self.elsewhere if task_state(task, self.runs) is State.RUNNING
        ]
        self.outcome.interrupted = asked() > 0
        return self.outcome

    def _freed(self, asked: Callable[[], int]) -> bool:
        """Whether there is more to do: what others had taken and have ended, however."""
        if asked():
            return False
        over = [each for each in self.elsewhere if task_state(each, self.runs) is not State.RUNNING]
        self.elsewhere = [each for each in self.elsewhere if each not in over]
        self.waiting.extend(over)
        return bool(over)

    def _heed(self, asked: int) -> None:
        if asked > self.heard:
            self.waiting.clear()
            for each in self.active:
                each.handle.kill() if asked > 1 else each.handle.interrupt()
            if asked == 1:
                alone = len(self.active) == 1
                left = "1 run finishes its" if alone else f"{len(self.active)} runs finish their"
                self.report(
                    f"stopping: {left} epoch; once more ends {'it' if alone else 'them'} now"
                )
        self.heard = asked

    def _fill(self, asked: Callable[[], int]) -> None:
        slots = self.engine.slots
        while self.waiting and not asked() and (slots is None or len(self.active) < slots):
            task = self.waiting.popleft()
            claim = Lock(self.runs / task.name, CLAIM)
            if not self._wanted(task, task_state(task, self.runs)):
                continue
            if not claim.acquire():
                self.elsewhere.append(task)
                continue
            # Another grid may have finished it between the two looks.
            state = task_state(task, self.runs, claimed=True)
            if self._wanted(task, state):
                run = Run(self.runs / task.name)
                run.failure_path.unlink(missing_ok=True)
                self.report(f"{task.name} {'goes on' if run.begun else 'starts'}")
                self.active.append(_Active(task, self.engine.start(task, run.path), claim))
            else:
                claim.release()

    def _wanted(self, task: Task, state: State) -> bool:
        if state is State.FAILED and not self.retry_failed:
            self.outcome.failed[task.name] = Run(self.runs / task.name).failure()
            return False
        return state is not State.DONE

    def _ended(self, each: _Active) -> bool:
        code = each.handle.poll()
        if code is None:
            return False
        name, run = each.task.name, Run(self.runs / each.task.name)
        if code not in (0, STOPPED) and not self.heard and not run.failure_path.exists():
            run.fail(_crash(code, run.log_path))
        each.claim.release()
        state = task_state(each.task, self.runs)
        if state is State.DONE:
            self.outcome.ran.append(name)
            result = run.result("seconds")
            said = f"{result['test_accuracy']:.2f} % in {result['seconds']:.0f} s"
            self.report(f"{name}: {said}; {self._progress()}")
        elif state is State.FAILED:
            self.outcome.failed[name] = run.failure()
            self.report(f"{name} failed: {reason(self.outcome.failed[name])}")
        else:
            self.report(f"{name} stopped")
        return True

    def _progress(self) -> str:
        status = grid_status(self.tasks, self.runs)
        text = f"{status.count(State.DONE)} of {len(self.tasks)} done"
        if status.seconds and self.engine.slots:
            text += f", about {duration(status.seconds / max(len(self.active), 1))} left"
        return text


def duration(seconds: float) -> str:
    """A time that people can read.

    Example:
        >>> duration(42), duration(3000), duration(90000)
        ('42 s', '50 min', '25.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
