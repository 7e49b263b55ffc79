"""What is done of a search, on disk, so that the same search can go on after an interruption."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib.format import write_array_header_1_0

from torchlace._files import write_whole
from torchlace._reporter import Reporter
from torchlace._sklearn import Array
from torchlace.detection.background import Moments
from torchlace.detection.pixels import Block, Pixels

try:
    import fcntl
except ImportError:  # Windows: two searches for one file are not told apart there
    fcntl = None  # type: ignore[assignment]

# Seconds between two saves.
_PAUSE = 5.0


class Journal:
    """A search in progress, in a folder beside its scores; a context that begins or resumes it.

    Scores are written as they come. Every few seconds it is noted how far they reach, or the
    moments of the background. What is wrong with the input ends the search, and the folder goes.

    Args:
        out: where the scores go at last.
        facts: what the search depends on; where it is not what it was, all begins anew.
        reporter: is told of progress.
    """

    def __init__(self, out: Path, facts: dict[str, Any], reporter: Reporter) -> None:
        self.out, self.facts, self.reporter = out, json.loads(json.dumps(facts)), reporter
        self.folder = out.with_name(f"{out.name}.unfinished")
        self.scored, self._fitted, self._lock = 0, False, -1
        self._pause()

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        if fcntl is not None:
            self._lock = os.open(self.folder, os.O_RDONLY)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(self._lock)
                raise ValueError(
                    f"another search is writing {self.out}: wait for it, or give another name"
                ) from None
        notes = self._notes()
        if notes is not None:
            other = [key for key, value in self.facts.items() if notes["facts"].get(key) != value]
            if other:
                self.reporter.message(
                    f"the {' and the '.join(other)} changed since the search in {self.folder} was "
                    "interrupted: beginning anew"
                )
                for path in self.folder.iterdir():
                    path.unlink()
            else:
                self.scored = notes["scored"]
        self._note()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, (ValueError, TypeError)):
            shutil.rmtree(self.folder)
        elif isinstance(error, KeyboardInterrupt):
            self.reporter.message(f"interrupted; the same command goes on from {self.folder}")
        if self._lock >= 0:
            os.close(self._lock)

    def background(self, pixels: Pixels, moments: Moments) -> Iterator[Block]:
        """The blocks that the moments have yet to see, which get what was seen before."""
        place, done = self.folder / "background.npz", 0
        if place.exists():
            with np.load(place) as state:
                moments.merge(state)
                done = int(state["rows"])
            if done < pixels.height:
                self._resuming("background", done, pixels.height)
            self._fitted = done == pixels.height
        for block in pixels.blocks(moments.device, done):
            yield block
            done = block.rows.stop
            self.reporter.progress("background", done, pixels.height)
            if done == pixels.height or self._due():
                state = {"rows": np.array(done), **moments.state()}
                write_whole(place, partial(np.savez, **state))
                self._pause()

    def write(
        self, scores: Iterator[tuple[slice, Array]], shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        """Write the scores of the rows from :attr:`scored` on, which then are a .npy file."""
        height, size = shape[0], math.prod(shape[1:]) * dtype.itemsize
        if self.scored < height and (self.scored or self._fitted):
            self._resuming("scores", self.scored, height)
        with self._writing(height):
            # Unbuffered, so that closing it writes nothing that could fail again.
            file = self.scores.open("r+b" if self.scored else "wb", buffering=0)
        with file:
            with self._writing(height):
                needed, free = (height - self.scored) * size, shutil.disk_usage(self.folder).free
                if needed > free:
                    raise OSError(f"it takes {needed:,} bytes more, and {free:,} are free")
                header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
                write_array_header_1_0(file, header)
                file.seek(file.tell() + self.scored * size)
            for rows, part in scores:
                with self._writing(height):
                    left = memoryview(part.tobytes())
                    while left:
                        left = left[file.write(left) :]
                self.reporter.progress("scores", rows.stop, height)
                if rows.stop == height or self._due():
                    with self._writing(height):
                        os.fsync(file.fileno())
                    self.scored = rows.stop
                    self._note()
                    self._pause()

    @contextmanager
    def _writing(self, height: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"{self.scores} could not be written ({error.strerror or error}): make room, then "
                f"the same command goes on from row {self.scored} of {height}"
            ) from error

    def finish(self) -> None:
        """Put the scores in their place."""
        self.scores.replace(self.out)

    @property
    def scores(self) -> Path:
        """The scores so far, .npy."""
        return self.folder / "scores.npy"

    def _notes(self) -> dict[str, Any] | None:
        try:
            notes: dict[str, Any] = json.loads((self.folder / "notes.json").read_text())
        except FileNotFoundError:
            return None
        return notes

    def _note(self) -> None:
        text = json.dumps({"facts": self.facts, "scored": self.scored})
        write_whole(self.folder / "notes.json", lambda file: file.write(text.encode()))

    def _due(self) -> bool:
        return time.monotonic() >= self._next

    def _pause(self) -> None:
        self._next = time.monotonic() + _PAUSE

    def _resuming(self, what: str, done: int, height: int) -> None:
        self.reporter.message(f"going on with the {what} from row {done} of {height}")
