"""Lines of results, one for each run: from run directories, or from committed files."""

from __future__ import annotations

import base64
import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from torchlace._checks import check_choice
from torchlace.evaluation.measures import figure, line_scores
from torchlace.experiments.cells import State, Task, read_config, run_name, task_state
from torchlace.runs import Run
from torchlace.runs.config import EXECUTION

Line = dict[str, Any]
_RESULT = (
    *("test_accuracy", "val_accuracy", "epochs", "best_epoch", "seconds", "device", "versions"),
    *("data_digest", "test_loss", "test_calibrated_loss", "test_top5_accuracy", "temperature"),
    *("parameters", "peak_memory_mib", "graph", "ece", "calibrated_ece"),
)
# What a line that says it is finished can't do without.
_COUNTED = ("test_accuracy", "test_images", "test_right", "data_digest", "seconds")
_KINDS: dict[str, tuple[Any, str]] = {
    "test_accuracy": (int | float, "be a number"),
    "seconds": (int | float, "be a number"),
    "data_digest": (str, "be a text"),
    "validation": (dict, "hold names and values"),
    "embeddings": (dict, "hold names and values"),
}


@dataclass(frozen=True)
class Record:
    """A line of results and where it is from: a run directory, or ``FILE:LINE``."""

    line: Line
    source: str

    @property
    def finished(self) -> bool:
        """Whether it has results."""
        return bool(self.line["status"] == "finished")

    def has(self, task: Task) -> bool:
        """Whether it is finished and tells all that is needed of classes that come later."""
        return self.finished and task.tells(self.line.get("later", {}))

    @property
    def running(self) -> bool:
        """Whether a living process is at work on it, so that nothing final can be said."""
        return bool(self.line["status"] == "running")

    def score(self, name: str) -> float | None:
        """A number of the line, dots going deeper; None where it has none."""
        if name == "last_val_accuracy":
            curve: list[float] = self.line.get("validation", {}).get("accuracy", [])
            return curve[-1] if curve else None
        found = figure(self.line, name)
        return None if found is None else float(found)

    def right(self) -> npt.NDArray[np.float64]:
        """Which test images were right: 1 or 0 for each.

        Example:
            >>> Record({"test_images": 3, "test_right": "wA=="}, "a.jsonl:1").right()
            array([1., 1., 0.])
        """
        packed = base64.b64decode(self.line["test_right"], validate=True)
        images = int(self.line["test_images"])
        if images < 1 or len(packed) != (images + 7) // 8:
            raise ValueError(f"test_right has {8 * len(packed)} bits for {images} test images")
        return np.unpackbits(np.frombuffer(packed, np.uint8))[:images].astype(np.float64)


def collect_records(
    tasks: Sequence[Task],
    experiment: str,
    runs: Path | str | None = None,
    results: Mapping[str, Record] | None = None,
) -> dict[str, Record]:
    """What there is of the runs that a grid needs, by name; a run directory wins over a line.

    Args:
        tasks: the runs.
        experiment: name that lines made from run directories bear.
        runs: folder of run directories.
        results: lines of results, see :func:`read_lines`.
    """
    found: dict[str, Record] = {}
    for task in tasks:
        record = (results or {}).get(task.name)
        if runs is not None:
            here = run_record(task, experiment, Path(runs))
            if here is not None and (record is None or here.finished or not record.finished):
                record = here
        if record is not None:
            found[task.name] = record
    return found


def run_record(task: Task, experiment: str, runs: Path) -> Record | None:
    """The line of a run directory; None if it was never started."""
    run = Run(runs / task.name)
    # What is not examined yet is finished all the same.
    bare = dataclasses.replace(task, inspect=False, embeddings=(), unknown=(), later=())
    state = task_state(bare, runs)
    if state is State.MISSING:
        return None
    history = run.epochs()
    # Where and how it computed, the run itself knows.
    computed = run.config() if run.config_path.exists() else task.config
    execution = {name: getattr(computed, name) for name in EXECUTION}
    config = dataclasses.replace(task.config, **{**execution, "root": None})
    line: Line = {
        "experiment": experiment,
        "run": task.name,
        "dataset": config.data,
        "head": config.head,
        "backbone": config.backbone_name,
        "protocol": config.protocol,
        "seed": config.seed,
        "status": "finished" if state is State.DONE else state.value,
    }
    if state is State.DONE:
        result = run.result(*_COUNTED)
        line |= {name: result.get(name) for name in _RESULT}
        speeds = [row["images_per_second"] for row in history[1:] or history]  # the first warms up
        step = 1000 * config.batch_size / statistics.median(speeds) if speeds else None
        line |= {"step_ms": step}
        line |= {name: result[name] for name in ("test_images", "test_right")}
    else:
        line |= {"epochs": len(history), "seconds": history[-1]["seconds"] if history else 0.0}
        if state is State.FAILED:
            line["error"] = run.failure()
    line["config"] = config.as_dict()
    line["validation"] = {
        "loss": [round(row["val_loss"], 6) for row in history],
        "accuracy": [round(row["val_accuracy"], 4) for row in history],
    }
    if state is State.DONE and run.evaluation_path.exists():
        line |= line_scores(run.read_json(run.evaluation_path))
    if state is State.DONE and run.embeddings_path.exists():
        line["embeddings"] = run.read_json(run.embeddings_path)
    if state is State.DONE and run.unknown_path.exists():
        line["unknown"] = run.read_json(run.unknown_path)["scores"]
    if state is State.DONE and run.later_path.exists():
        line["later"] = run.read_json(run.later_path)["scores"]
    return Record(line, str(run.path))


def read_lines(path: Path | str) -> dict[str, Record]:
    """The runs of a .jsonl file, or of all those in a folder, by name.

    A run that is listed several times counts once; two results of the same settings are an error,
    because choosing between them would be.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(f"there are no results in {path}: expected .jsonl files")
    found: dict[str, Record] = {}
    for record in (each for file in files for each in _records(file)):
        name = run_name(read_config(record.line["config"], record.source))
        found[name] = _better(found[name], record) if name in found else record
    return found


def to_lines(records: Iterable[Record]) -> str:
    """Records as the text of a .jsonl file; runs that are at work have no line yet."""
    lines = (record.line for record in records if not record.running)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def shortened(sources: Iterable[str]) -> list[str]:
    """Sources that differ in their last number only, as one.

    Example:
        >>> shortened(["runs/a-s0", "runs/a-s1", "table1.jsonl:7"])
        ['runs/a-s0,1', 'table1.jsonl:7']
    """
    groups: dict[str, list[str]] = {}
    for source in sources:
        stem = source.rstrip("0123456789")
        groups.setdefault(stem, []).append(source.removeprefix(stem))
    return [stem + ",".join(numbers) for stem, numbers in groups.items()]


def _records(file: Path) -> Iterable[Record]:
    # Bytes: a damaged line is named by its number, whatever is in it.
    for number, text in enumerate(file.read_bytes().splitlines(), start=1):
        source = f"{file}:{number}"
        try:
            record = Record(json.loads(text.decode()), source)
            _check(record)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{source} is not a line of results: {error}") from None
        yield record


def _check(record: Record) -> None:
    """Raise unless a line can be counted on: what is finished agrees with its own test images."""
    line = record.line
    if not isinstance(line, dict) or not {"config", "status"} <= set(line):
        raise ValueError("it has no config or no status")
    if not isinstance(line["config"], dict):
        raise ValueError(f"config must hold settings, got {line['config']!r}")
    check_choice("status", line["status"], ("finished", "failed", "cut"))
    if line["status"] != "finished":
        return
    lacking = [name for name in _COUNTED if line.get(name) is None]
    if lacking:
        raise ValueError(f"it is finished and lacks {', '.join(lacking)}")
    for name, (kind, said) in _KINDS.items():
        if name in line and not isinstance(line[name], kind):
            raise ValueError(f"{name} must {said}, got {line[name]!r}")
    curve = line.get("validation", {"accuracy": []}).get("accuracy")
    if not isinstance(curve, list) or not all(isinstance(each, int | float) for each in curve):
        raise ValueError(f"accuracy of validation must be a list of numbers, got {curve!r}")
    right = 100 * float(record.right().mean())
    if not abs(line["test_accuracy"] - right) < 1e-6:
        raise ValueError(f"test_accuracy is {line['test_accuracy']}, but {right} by test_right")


def _better(first: Record, second: Record) -> Record:
    if not (first.finished and second.finished):
        return second if second.finished else first
    if first.line["test_right"] != second.line["test_right"]:
        raise ValueError(
            f"{first.source} and {second.source} are different results of the same settings: "
            "keep one"
        )
    return max(first, second, key=lambda record: len(record.line))
