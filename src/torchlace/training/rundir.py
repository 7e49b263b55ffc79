"""A run is a directory; its files appear whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlace import _files
from torchlace.training.config import TrainConfig


class RunError(Exception):
    """A run can't be started, continued or read; the message says why and what to do."""


class Run:
    """Paths and files of one run.

    Example:
        >>> Run("runs/demo").result_path.as_posix()
        'runs/demo/result.json'
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.yaml"
        self.metrics_path = self.path / "metrics.csv"
        self.checkpoint_path = self.path / "last.ckpt"
        self.weights_path = self.path / "best.safetensors"
        self.result_path = self.path / "result.json"
        self.records_path = self.path / "records.json"

    @property
    def finished(self) -> bool:
        """Whether the run is complete."""
        return self.result_path.exists()

    def result(self) -> dict[str, Any]:
        """The final figures."""
        if not self.finished:
            state = "is not finished" if self.config_path.exists() else "holds no run"
            raise RunError(f"{self.path} {state}: there is no {self.result_path.name}")
        try:
            values: dict[str, Any] = json.loads(self.result_path.read_text())
        except ValueError as error:
            raise RunError(
                f"{self.result_path} is damaged: {error}. --overwrite trains the run anew"
            ) from error
        return values

    def config(self) -> TrainConfig:
        """The settings it was started with."""
        if not self.config_path.exists():
            raise RunError(f"{self.path} holds no run: there is no {self.config_path.name}")
        return TrainConfig.from_yaml(self.config_path)

    def facts(self) -> dict[str, Any]:
        """What the run found out at its start: classes, image size, statistics, versions."""
        import yaml

        self.config()
        values: dict[str, Any] = yaml.safe_load(self.config_path.read_text()).get("run", {})
        return values

    def start(self, config: TrainConfig, facts: Mapping[str, Any]) -> None:
        """Write config.yaml."""
        import yaml

        text = yaml.safe_dump({**config.placed().as_dict(), "run": dict(facts)}, sort_keys=False)
        write_whole(self.config_path, lambda file: file.write(text.encode()))

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write metrics.csv, one row an epoch."""
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_whole(self.metrics_path, lambda file: file.write(text.getvalue().encode()))

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json: the run is complete."""
        text = json.dumps(result, indent=1)
        write_whole(self.result_path, lambda file: file.write(text.encode()))

    def sweep(self) -> None:
        """Remove what kills left half-written; only for who holds the run's lock."""
        # Whoever examines a run may be writing too, but other files.
        for path in self.path.glob(f".*{_files.PART}"):
            if path.name.startswith(_PARTS):
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of an earlier run."""
        # First what says that it is complete: a kill half-way leaves an unfinished run.
        self.result_path.unlink(missing_ok=True)
        for path in self.path.iterdir():
            if path.name.startswith((*_DERIVED, *_PARTS)) or path in (
                self.config_path,
                self.metrics_path,
                self.checkpoint_path,
                self.weights_path,
                self.result_path,
                self.records_path,
            ):
                path.unlink(missing_ok=True)


# Made from a run by those who watch or examine it.
_DERIVED = (
    *("events.out.tfevents", "features.safetensors", "evaluation.json", "embedding"),
    "model.onnx",
)
_PARTS = tuple(
    f".{name}" for name in ("config", "metrics", "last", "best", "result", "records", "shared")
)


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
