"""Engines for tests."""

import contextlib
from pathlib import Path

from torchlace.experiments.engines import LocalEngine
from torchlace.training import Reporter, Run


class Pretended:
    """An engine whose cells take as many looks as told, and end as told."""

    slots = 2

    def __init__(self, codes=None, looks=3, on_look=lambda: None):
        self.codes, self.looks, self.on_look = codes or {}, looks, on_look
        self.started, self.handles = [], []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def check(self, tasks):
        pass

    def start(self, task, path):
        self.started.append(task.name)
        assert sum(not handle.over for handle in self.handles) < self.slots
        handle = _Handle(self, task, Path(path))
        self.handles.append(handle)
        return handle


class _Handle:
    def __init__(self, engine, task, path):
        self.engine, self.task, self.path = engine, task, path
        self.left, self.asked, self.over = engine.looks, [], False

    def poll(self):
        self.engine.on_look()
        if "kill" in self.asked:
            self.over = True
            return -9
        if "interrupt" in self.asked and self.left < 0:
            self.over = True
            return 130
        self.left -= 1
        if self.left > 0:
            return None
        self.over = True
        code = self.engine.codes.get(self.task.config.seed, 0)
        if code == 0:
            Run(self.path).start(self.task.config, {})
            Run(self.path).finish({"test_accuracy": 50.0, "seconds": 2.0})
        return code

    def interrupt(self):
        self.asked.append("interrupt")

    def kill(self):
        self.asked.append("kill")


class Lines(Reporter):
    """A reporter that remembers what it was told."""

    def __init__(self):
        self.told = []

    def message(self, text):
        self.told.append(text)


class Watched(LocalEngine):
    """The local engine, which remembers its processes."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.started = []

    def start(self, task, path):
        self.started.append(super().start(task, path))
        return self.started[-1]


@contextlib.contextmanager
def stopped(process):
    """Make sure that a process is gone afterwards."""
    try:
        yield process
    finally:
        process.kill()
