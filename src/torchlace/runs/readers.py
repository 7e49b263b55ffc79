"""What the files of a run say; each function raises ValueError where a file can't be used."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchlace._text import listed
from torchlace._yaml import read_yaml_file, read_yaml_text
from torchlace.runs import seals

Facts = dict[str, Any]

_FACTS = ("class_names", "channels", "size", "mean", "std", "data_digest")
_NUMBERS = ("test_accuracy", "val_accuracy", "epochs", "best_epoch", "seconds", "parameters")
_LONGEST_SIDE = 1 << 16
# Backgrounds of earlier versions, by what they are called today.
_BACKGROUNDS = {"estimated": "total", "low-rank": "low-rank-total"}


def read_settings(text: str, source: str) -> tuple[dict[str, Any], Facts]:
    """The settings in a run's config.yaml, and what the run found out at its start."""
    values = read_yaml_text(text, source)
    if not isinstance(values, dict):
        raise ValueError(f"it must hold `name: value` lines, not {type(values).__name__}")
    settings, facts = _split(values)
    _check_facts(facts)
    return settings, facts


def read_yaml(path: Path) -> tuple[dict[str, Any], Facts]:
    """The settings in any YAML file, and the facts of a run if it is a run's config.yaml."""
    try:
        values = read_yaml_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration file {path}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold `name: value` lines, got {type(values).__name__}")
    return _split(values) if "run" in values else (values, {})


def read_object(text: str) -> dict[str, Any]:
    """The names and values of a JSON file."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(values, dict):
        raise ValueError("it must hold names and values")
    return values


def check_result(result: dict[str, Any], needed: Sequence[str] = ()) -> None:
    """Whether a result.json has the figures that tables and pages count on."""
    lacking = [name for name in ("test_accuracy", *needed) if result.get(name) is None]
    if lacking:
        raise ValueError(f"it lacks {listed(lacking)}")
    odd = [name for name in _NUMBERS if not isinstance(result.get(name), int | float | None)]
    odd += [name for name in ("versions",) if not isinstance(result.get(name, {}), dict)]
    if odd:
        said = ", ".join(f"{name} is {result[name]!r}" for name in odd)
        raise ValueError(f"it can't be that {said}")


def read_history(text: str) -> list[dict[str, Any]]:
    """The rows of a metrics.csv, one for each epoch, as numbers."""
    try:
        rows = [
            {name: float(value) for name, value in row.items() if name != "digest"}
            for row in csv.DictReader(io.StringIO(text, newline=""))
        ]
        rows = [{**row, "epoch": int(row["epoch"])} for row in rows]
    except KeyError as error:
        raise ValueError(f"it has no column {error}") from None
    except (TypeError, OverflowError, csv.Error) as error:
        raise ValueError(str(error)) from error
    check_history(rows)
    return rows


def check_history(rows: Any) -> None:
    """Whether there is a row for each epoch, from the first to the last."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("its epochs are not a list of rows")
    lacking = sorted({*range(1, len(rows) + 1)} - {row.get("epoch") for row in rows})
    if lacking:
        raise ValueError(f"it lacks epoch {listed(lacking)}")


def translated(values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a run from before LACE whitened within classes, as they are written today.

    Then the covariance was that of all samples, scores had no bias, signatures no anchor, and the
    automatic scale was AdaCos'.

    Example:
        >>> translated({"head": "lace", "head_options": {"mean": False}})["head_options"]
        {'background': 'total', 'scale': 'adacos', 'bias': False, 'mean': False}
        >>> translated({"head": "softmax"})
        {'head': 'softmax'}
    """
    head, options = values.get("head", "lace"), dict(values.get("head_options") or {})
    if head not in ("lace", "lace-learned", "normface"):
        return values
    if options.get("scale", "auto") == "auto":
        options["scale"] = "adacos"
    if head == "lace":
        options = _lace(options)
    return {**values, "head_options": options}


def best_epoch(history: Sequence[Mapping[str, Any]]) -> int:
    """The epoch of the highest validation accuracy, and of equal ones of the lowest loss.

    Example:
        >>> rows = [(1, 7.0, 0.5), (2, 9.0, 0.4), (3, 9.0, 0.3)]
        >>> names = ("epoch", "val_accuracy", "val_loss")
        >>> best_epoch([dict(zip(names, row)) for row in rows])
        3
    """
    return int(max(history, key=lambda row: (row["val_accuracy"], -row["val_loss"]))["epoch"])


def _split(values: dict[str, Any]) -> tuple[dict[str, Any], Facts]:
    """Settings of a run as they are written today, and its facts.

    What to import is no setting here: a run folder may come from anywhere.
    """
    facts = values.pop("run", None)
    values.pop("imports", None)
    number = facts.get("format", 1) if isinstance(facts, dict) else 1
    if facts is not None and isinstance(number, int) and number < seals.FORMAT:
        values = translated(values)
    return values, facts if isinstance(facts, dict) else {}


def _lace(options: dict[str, Any]) -> dict[str, Any]:
    background = options.pop("background", "estimated")
    scale = options.pop("scale")
    if background == "within":  # which knew of anchors for a while, if asked
        found = {name: options.pop(name, False) for name in ("anchored", "bias")}
        return {"scale": scale, **found, **options}
    if background == "one-vs-all":
        options["background_options"] = {"shrinkage": 0.1, **options.get("background_options", {})}
    background = _BACKGROUNDS.get(background, background)
    return {"background": background, "scale": scale, "bias": False, **options}


def _check_facts(facts: Facts) -> None:
    lacking = [name for name in _FACTS if name not in facts]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)} under run:")
    names, size = facts["class_names"], facts["size"]
    if not _list_of(names, str) or len(names) < 2:
        raise ValueError("class_names under run: must be two texts or more")
    if not _list_of(size, int) or len(size) != 2 or not 0 < min(size) <= max(size) < _LONGEST_SIDE:
        raise ValueError(f"size under run: must be a height and a width, got {size!r}")
    if not isinstance(facts["data_digest"], str):
        raise ValueError(f"data_digest under run: must be a text, got {facts['data_digest']!r}")
    mean, std = facts["mean"], facts["std"]
    for name, each in (("mean", mean), ("std", std)):
        if not _list_of(each, int | float) or not all(map(math.isfinite, each)):
            raise ValueError(f"{name} under run: must be a list of numbers, got {each!r}")
    # The paper's protocol shows grey images in three.
    channels = facts["channels"]
    if not isinstance(channels, int) or len(mean) != len(std) or len(mean) not in (channels, 3):
        raise ValueError(
            f"mean and std under run: must be as long as each other and as channels ({channels!r})"
        )


def _list_of(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, kind) and not isinstance(each, bool) for each in value
    )
