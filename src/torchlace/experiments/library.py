"""Reads experiments from YAML files: those of the package by name, one's own by path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any

from torchlace._checks import check_choice, check_count
from torchlace._imports import import_all
from torchlace._yaml import read_yaml_file, read_yaml_text
from torchlace.detection.scores import SCORES
from torchlace.evaluation.measures import line_names
from torchlace.experiments.experiment import Column, Experiment, Published, Row, check_seeds
from torchlace.runs import TrainConfig
from torchlace.runs.recipes import read_recipe

# Takes what an error calls a value, and the value; gives what the field holds.
Reader = Callable[[str, Any], Any]
_NUMBER = re.compile(r"\s*(-?{0})\s*(?:±\s*({0})\s*)?".format(r"(?:\d+\.?\d*|\.\d+)"))
_LAYOUT = re.compile(r"(raw|whitened)-(tsne|pca|umap)-[23]d")


def experiment_names() -> list[str]:
    """Names of the experiments that come with the package.

    Example:
        >>> "table1" in experiment_names()
        True
    """
    return sorted(file.name.removesuffix(".yaml") for file in _shipped())


def load_experiment(name: str | Path) -> Experiment:
    """An experiment of the package by its name, or one's own by the path of its YAML file.

    Example:
        >>> load_experiment("table1").title
        'Table 1: test accuracy (%) with ResNet18'
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        return _experiment(path.stem, read_yaml_file(path), str(path))
    check_choice("experiment", str(name), experiment_names())
    file = next(file for file in _shipped() if file.name == f"{name}.yaml")
    return _experiment(str(name), read_yaml_text(file.read_text("utf-8"), file.name), file.name)


def _shipped() -> Iterator[Traversable]:
    folder = files("torchlace.experiments") / "grids"
    return (file for file in folder.iterdir() if file.name.endswith(".yaml"))


def _experiment(name: str, raw: Any, source: str) -> Experiment:
    given = _fields(raw, source, _EXPERIMENT)
    import_all(given.get("imports", ()))
    for needed in ("rows", "columns"):
        if not given.get(needed):
            raise ValueError(f"{source} has no {needed}: name at least one under `{needed}:`")
    shared = {"score": given.pop("score")} if "score" in given else {}
    columns = _each(Column, given, "column", source, _COLUMN, **shared)
    rows = _each(Row, given, "row", source, _ROW)
    for row, column in product(rows.values(), columns.values()):
        where = f"score in column {column.name} of {source} for row {row.name}"
        if not row.archived:
            _check_score(where, column.score.format(space=row.space), column)
    for row in rows.values():
        for column_name in row.published:
            check_choice(f"column published in row {row.name} of {source}", column_name, columns)
    if "baseline" in given:
        check_choice(f"baseline in {source}", given["baseline"], rows)
    lists = {"rows": tuple(rows.values()), "columns": tuple(columns.values())}
    return Experiment(**{"name": name, "title": name, **given, **lists})


def _check_score(where: str, score: str, column: Column) -> None:
    """Raise unless lines hold this score.

    ``unknown.SCORE.SET.MEASURE`` tells samples apart; ``later.SIZE.LEARNER.MEASURE`` is of classes
    that come later, so many at a time.
    """
    kind, *words = score.split(".")
    if kind == "later" and len(words) == 3:
        from torchlace.experiments.later import LEARNERS, MEASURES

        check_count(f"{where}: classes at a time", int(words[0]) if words[0].isdecimal() else 0)
        check_choice(f"{where}: learner", words[1], LEARNERS)
        check_choice(f"{where}: measure", words[2], MEASURES)
        return
    if kind != "unknown" or len(words) != 3:
        check_choice(where, score, line_names())
        return
    name, source, measure = words
    check_choice(f"{where}: score of unknown samples", name, SCORES)
    check_choice(f"{where}: unknown set of the column", source, column.unknown)
    check_choice(f"{where}: measure", measure, ("auroc", "fpr_at_95_recall", "aupr"))


def _each(
    kind: Callable[..., Any],
    given: Mapping[str, Any],
    word: str,
    source: str,
    readers: Mapping[str, Reader],
    **shared: Any,
) -> dict[str, Any]:
    """The rows or the columns by name; ``shared`` is what all have that don't say otherwise."""
    found = {}
    for name, raw in given[f"{word}s"].items():
        fields = _fields(raw, f"{word} {name} of {source}", readers)
        found[name] = kind(**{"name": name, "label": name, **shared, **fields})
    return found


def _fields(raw: Any, where: str, readers: Mapping[str, Reader]) -> dict[str, Any]:
    """What a mapping says, each value read by the reader of its key; empty ones are left out."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must hold `name: value` lines, got {type(raw).__name__}")
    for key in raw:
        check_choice(f"key in {where}", key, readers)
    given = {key: value for key, value in raw.items() if value is not None}
    return {key: readers[key](f"{key} in {where}", value) for key, value in given.items()}


def _text(name: str, value: Any) -> str:
    return str(value)


def _flag(name: str, value: Any) -> bool:
    # Of a text such as "no", Python would make a yes.
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {value!r}")
    return value


def _score(name: str, value: Any) -> str:
    if re.search(r"[{}]", str(value).replace("{space}", "")):
        raise ValueError(f"{name} may hold {{space}} and no other braces, got {value!r}")
    return str(value)


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold `name: value` lines, got {value!r}")
    # YAML reads some names as numbers or as yes and no.
    return {str(key): each for key, each in value.items()}


def _settings(name: str, value: Any) -> dict[str, Any]:
    settings = _mapping(name, value)
    if "seed" in settings:
        raise ValueError(f"{name} name a seed: say how many under `seeds:` instead")
    if "imports" in settings:
        raise ValueError(f"{name} name imports: say them beside `rows:` instead")
    recipe = settings.pop("recipe", None)
    return {**read_recipe(str(recipe)), **settings} if recipe else settings


def _published(name: str, value: Any) -> dict[str, Published]:
    found = {}
    for column, text in _mapping(name, value).items():
        match = _NUMBER.fullmatch(str(text))
        if match is None:
            raise ValueError(f"{name} must read like 88.69 ± 0.21, got {text!r}")
        mean, deviation = match.groups()
        found[column] = Published(float(mean), None if deviation is None else float(deviation))
    return found


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list of names, got {value!r}")
    return tuple(map(str, value))


def _layouts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be a list like [raw-tsne-3d], got {value!r}")
    for each in value:
        if not _LAYOUT.fullmatch(str(each)):
            raise ValueError(f"{name} must read like raw-tsne-3d, got {each!r}")
    return tuple(value)


_from_zero = partial(check_count, low=0)
_best = partial(check_choice, choices=("highest", "lowest", "none"))
_COLUMN: dict[str, Reader] = {
    **{"label": _text, "settings": _settings, "score": _score, "best": _best},
    **{"digits": _from_zero, "inspect": _flag, "unknown": _names},
}
_ROW: dict[str, Reader] = {
    **{"label": _text, "settings": _settings, "published": _published, "seeds": check_seeds},
    **{"space": _text, "archived": _flag},
}
_EXPERIMENT: dict[str, Reader] = {
    **{"title": _text, "source": _text, "baseline": _text, "score": _score},
    "about": lambda name, value: " ".join(str(value).split()),
    **{"rows": _mapping, "columns": _mapping, "settings": _settings, "embeddings": _layouts},
    "imports": lambda name, value: TrainConfig.from_dict({"imports": value}, name).imports,
    **{"seeds": check_seeds, "first_seed": _from_zero, "alone": _flag},
}
