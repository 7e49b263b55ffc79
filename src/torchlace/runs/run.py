"""A run is a directory: this is the one place that reads and writes its files."""

from __future__ import annotations

import csv
import io
import json
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlace import _files
from torchlace._imports import require_imported
from torchlace._text import setting
from torchlace.runs import files, readers, seals
from torchlace.runs.config import TrainConfig

if TYPE_CHECKING:
    from torch import Tensor

# Runs without digests that were warned of: once each.
_told: set[Path] = set()


class RunError(Exception):
    """A run can't be started, continued or read; the message says why and what to do."""


class Run:
    """The directory of one run: where its files are, and the one way to read and write them.

    Every file carries its own digest (:mod:`torchlace.runs.seals`) and appears whole or not at all;
    reading a file that is not what was written is an error. Runs from before there were digests
    are read with a warning.

    Example:
        >>> Run("runs/demo").result_path.as_posix()
        'runs/demo/result.json'
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_path = self.path / files.CONFIG
        self.metrics_path = self.path / files.METRICS
        self.checkpoint_path = self.path / files.CHECKPOINT
        self.weights_path = self.path / files.WEIGHTS
        self.result_path = self.path / files.RESULT
        self.records_path = self.path / files.RECORDS
        self.features_path = self.path / files.FEATURES
        self.evaluation_path = self.path / files.EVALUATION
        self.embeddings_path = self.path / files.EMBEDDINGS
        self.unknown_path = self.path / files.UNKNOWN
        self.later_path = self.path / files.LATER
        self.failure_path = self.path / files.FAILED
        self.log_path = self.path / files.LOG

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self.result_path.exists()

    @property
    def begun(self) -> bool:
        """Whether training has left anything to go on from."""
        return self.checkpoint_path.exists() or self.finished

    def check_there(self) -> None:
        """Raise if config.yaml is gone, because the other files say nothing without it."""
        if not self.config_path.exists():
            raise RunError(
                f"{self.config_path} is gone, and nobody can tell what the other files are of: "
                f"bring it back, choose another {setting('path')}, or replace this one with "
                f"{setting('overwrite', True)}"
            )

    def settings(self) -> tuple[TrainConfig, dict[str, Any]]:
        """The settings it was started with, and its facts: classes, image size, versions."""
        if not self.config_path.exists():
            raise RunError(f"{self.path} holds no run: there is no {self.config_path.name}")
        content = self.read(self.config_path)
        with damaged(self.config_path):
            source = str(self.config_path)
            settings, facts = readers.read_settings(content.decode(), source)
            return TrainConfig.from_dict(settings, source), facts

    def config(self) -> TrainConfig:
        """The settings it was started with."""
        return self.settings()[0]

    def facts(self) -> dict[str, Any]:
        """What the run found out at its start: classes, image size, statistics, versions."""
        return self.settings()[1]

    def result(self, *needed: str) -> dict[str, Any]:
        """The final figures; an error if one of those ``needed`` is not among them."""
        if not self.finished:
            if not self.config_path.exists():
                raise RunError(f"{self.path} holds no run: there is no {self.result_path.name}")
            raise RunError(
                f"{self.path} is not finished: the command that trains it goes on with it"
            )
        result = self.read_json(self.result_path)
        with damaged(self.result_path):
            readers.check_result(result, needed)
        return result

    def history(self) -> list[dict[str, Any]]:
        """The rows of metrics.csv, one for each epoch, as numbers."""
        if not self.metrics_path.exists():
            raise RunError(f"{self.path} is damaged: there is no {self.metrics_path.name}")
        content = self.read(self.metrics_path)
        with damaged(self.metrics_path):
            rows = readers.read_history(content.decode())
            epochs = self.result("epochs")["epochs"] if self.finished else len(rows)
            if len(rows) != epochs:
                raise ValueError(f"it has {len(rows)} of the {epochs} epochs of the run")
        return rows

    def epochs(self) -> list[dict[str, Any]]:
        """The rows of metrics.csv, or none if no epoch is complete."""
        return self.history() if self.metrics_path.exists() else []

    def require_imports(self) -> None:
        """Raise unless the code that it was trained with is imported; it imports none by itself."""
        try:
            require_imported(self.path, self.facts().get("imports", {}))
        except (ImportError, ValueError) as error:
            raise RunError(str(error)) from None

    def failure(self) -> str:
        """Why a grid found the run failed, and what else is known of it."""
        return self.failure_path.read_text().strip()

    def weights(self) -> dict[str, Tensor]:
        """The weights to use, on the CPU."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        content = self.read(self.weights_path)
        with damaged(self.weights_path):
            try:
                return load(content)
            except SafetensorError as error:
                raise ValueError(f"{type(error).__name__}: {error}") from error

    def read_json(self, path: Path) -> dict[str, Any]:
        """The names and values of one of the run's JSON files."""
        content = self.read(path)
        with damaged(path):
            values = readers.read_object(content.decode())
        values.pop("digest", None)
        return values

    def read(self, path: Path) -> bytes:
        """The content of one of the run's files, if it is what was written.

        Raises:
            RunError: if it can't be read, or has changed since.
        """
        with damaged(path):
            content = path.read_bytes()
        seal = seals.read_seal(content)
        if seal.intact:
            return content
        if not seal.digest and not self._promises_digests():
            if self.path.absolute() not in _told:
                _told.add(self.path.absolute())
                warnings.warn(
                    f"{self.path} was made before files of runs carried digests: whether they are "
                    "what was written can't be told",
                    UserWarning,
                    stacklevel=2,
                )
            return content
        reason = "its content is not what was written" if seal.digest else "its digest is gone"
        accept = _acceptance(content, seal) if path == self.config_path else ""
        raise RunError(_damage(path, reason, accept))

    def start(self, config: TrainConfig, facts: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        import yaml

        found = {"format": seals.FORMAT, **facts, "digest": seals.BLANK}
        settings = config.placed().as_dict()
        # Under run:, with their digests, where no reader takes them for settings.
        del settings["imports"]
        text = yaml.safe_dump({**settings, "run": found}, sort_keys=False)
        self.write(self.config_path, seals.sealed_text(text))

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write metrics.csv, one row an epoch."""
        text = io.StringIO()
        writer = csv.DictWriter(text, [*rows[0], "digest"], lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows[:-1], {**rows[-1], "digest": seals.BLANK}])
        self.write(self.metrics_path, seals.sealed_text(text.getvalue()))

    def write_weights(self, state: Mapping[str, Tensor]) -> None:
        """Write best.safetensors, the weights to use, from a state on the CPU."""
        from safetensors.torch import save

        state = {name: value.contiguous() for name, value in state.items()}
        self.write(self.weights_path, *seals.sealed_tensors(save(state, {"digest": seals.BLANK})))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json: the run is complete."""
        self.write_json(self.result_path, result)

    def fail(self, text: str) -> None:
        """Write failed.txt: why a grid gives the run up."""
        self.write(self.failure_path, f"{text}\n".encode())

    @staticmethod
    def write(path: Path, *pieces: seals.Buffer) -> None:
        """Write one of the run's files, whole or not at all."""
        write_whole(path, lambda file: file.writelines(pieces))

    def write_json(self, path: Path, values: Mapping[str, Any]) -> None:
        """Write one of the run's JSON files."""
        self.write(path, self.json_content(values))

    @staticmethod
    def json_content(values: Mapping[str, Any]) -> bytes:
        """What stands in one of the run's JSON files."""
        text = json.dumps({**values, "digest": seals.BLANK}, indent=1)
        return seals.sealed_text(text)

    def sweep(self) -> None:
        """Remove what kills left half-written; only for whoever holds the run's lock."""
        # Whoever examines a run may be writing too, but other files.
        for path in self.path.glob(f".*{_files.PART}"):
            if files.half_written(path.name):
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        # First what says that it is complete: a kill half-way leaves an unfinished run.
        self.result_path.unlink(missing_ok=True)
        for path in self.path.iterdir():
            if files.replaced(path.name):
                path.unlink(missing_ok=True)

    def _promises_digests(self) -> bool:
        """Whether all files of this run were written with digests."""
        return self.config_path.exists() and seals.promised(self.config_path.read_bytes())


@contextmanager
def damaged(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a run's file is read into a RunError that says what to do."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise RunError(_damage(path, str(reason))) from error


def _damage(path: Path, reason: str, accept: str = "") -> str:
    return (
        f"{path} is damaged or of another version: {reason}. {accept}Bring back a copy of it, or "
        f"train the run anew: {setting('overwrite', True, of='train')} does, and a grid once "
        f"{path.parent} is removed"
    )


def _acceptance(content: bytes, seal: seals.Seal) -> str:
    """How to go on with settings that were edited by hand."""
    if seal.digest:
        return f"If you edited it, write {seal.right} in the place of {seal.digest}. "
    text = f"{content.decode(errors='replace').rstrip()}\n  digest: {seals.BLANK}\n"
    line = seals.sealed_text(text).decode().splitlines()[-1]
    return f"If you edited it, end it with the line {line!r}. "


def write_whole(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file as :func:`torchlace._files.write_whole` does; if it can't be, a RunError."""
    _files.write_whole(path, write, RunError)


def versions() -> dict[str, str]:
    """What a run was made with."""
    import torch

    import torchlace

    return {
        "torchlace": torchlace.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
