"""Reporters that end a training in this process, and one that remembers."""

from torchlace.training import Reporter


class StoppedError(Exception):
    pass


class Recorder(Reporter):
    def __init__(self):
        self.messages, self.rows = [], []

    def message(self, text):
        self.messages.append(text)

    def step(self, epoch, step, steps):
        pass

    def epoch(self, row, epochs):
        self.rows.append(row)


class StopAfter(Recorder):
    def __init__(self, epoch):
        super().__init__()
        self.last = epoch

    def epoch(self, row, epochs):
        super().epoch(row, epochs)
        if row["epoch"] == self.last:
            raise StoppedError


class StopWithin(Recorder):
    """In the middle of an epoch."""

    def __init__(self, epoch):
        super().__init__()
        self.last = epoch

    def step(self, epoch, step, steps):
        if epoch == self.last and step == steps // 2 + 1:
            raise StoppedError
