"""Experiments read from YAML: those of the package by name, one's own by path."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any

from torchlace._checks import check_choice, check_count
from torchlace._yaml import read_yaml_file, read_yaml_text
from torchlace.evaluation.measures import line_names
from torchlace.experiments.experiment import Column, Experiment, Published, Row, check_seeds
from torchlace.runs import TrainConfig

_EXPERIMENT = {
    *("title", "about", "rows", "columns", "settings", "seeds", "first_seed"),
    *("baseline", "score", "alone", "embeddings", "imports", "source"),
}
_ROW = {"label", "settings", "published", "seeds", "space", "archived"}
_COLUMN = {"label", "settings", "score", "best", "digits", "inspect"}
_NUMBER = re.compile(r"\s*(-?{0})\s*(?:±\s*({0})\s*)?".format(r"(?:\d+\.?\d*|\.\d+)"))


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
        return _read(path.stem, read_yaml_file(path), str(path))
    check_choice("experiment", str(name), experiment_names())
    file = next(file for file in _shipped() if file.name == f"{name}.yaml")
    return _read(str(name), read_yaml_text(file.read_text("utf-8"), file.name), file.name)


def _shipped() -> Iterator[Traversable]:
    folder = files("torchlace.experiments") / "grids"
    return (file for file in folder.iterdir() if file.name.endswith(".yaml"))


def _read(name: str, raw: Any, source: str) -> Experiment:
    given = _mapping(raw, source, _EXPERIMENT)
    for needed in ("rows", "columns"):
        if not given.get(needed):
            raise ValueError(f"{source} has no {needed}: name at least one under `{needed}:`")
    score = str(given.get("score", "test_accuracy"))
    columns = {n: _column(n, c, source, score) for n, c in _items(given, "columns", source)}
    rows = {n: _row(n, r, source, columns) for n, r in _items(given, "rows", source)}
    for row, column in product(rows.values(), columns.values()):
        where = f"score in column {column.name} of {source} for row {row.name}"
        check_choice(where, column.score.format(space=row.space), line_names())
    baseline = given.get("baseline")
    if baseline is not None:
        baseline = check_choice(f"baseline in {source}", str(baseline), rows)
    return Experiment(
        name=name,
        title=str(given.get("title", name)),
        about=" ".join(str(given.get("about", "")).split()),
        rows=tuple(rows.values()),
        columns=tuple(columns.values()),
        settings=_settings(given, source),
        seeds=check_seeds(f"seeds in {source}", given.get("seeds", 3)),
        first_seed=check_count(f"first_seed in {source}", given.get("first_seed", 0), 0),
        baseline=baseline,
        alone=_flag(given, "alone", source),
        embeddings=_embeddings(given.get("embeddings"), source),
        imports=TrainConfig.from_dict({"imports": given.get("imports", ())}, source).imports,
        source=str(given.get("source", "published")),
    )


def _row(name: str, raw: Any, source: str, columns: Mapping[str, Column]) -> Row:
    where = f"row {name} of {source}"
    given = _mapping(raw, where, _ROW)
    published = {}
    for column, value in _items(given, "published", where):
        check_choice(f"column published in {where}", column, columns)
        published[column] = _published(value, where)
    seeds = given.get("seeds")
    return Row(
        name,
        str(given.get("label", name)),
        _settings(given, where),
        published,
        None if seeds is None else check_seeds(f"seeds in {where}", seeds),
        str(given.get("space", "raw_sphere")),
        _flag(given, "archived", where),
    )


def _column(name: str, raw: Any, source: str, score: str) -> Column:
    where = f"column {name} of {source}"
    given = _mapping(raw, where, _COLUMN)
    best = check_choice(
        f"best in {where}", str(given.get("best", "highest")), ("highest", "lowest", "none")
    )
    return Column(
        name,
        str(given.get("label", name)),
        _settings(given, where),
        _score(str(given.get("score", score)), where),
        best,
        check_count(f"digits in {where}", given.get("digits", 2), 0),
        _flag(given, "inspect", where),
    )


def _settings(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    settings = dict(_items(given, "settings", where))
    if "seed" in settings:
        raise ValueError(f"settings of {where} name a seed: say how many under `seeds:` instead")
    if "imports" in settings:
        raise ValueError(f"settings of {where} name imports: say them beside `rows:` instead")
    return settings


def _published(value: Any, where: str) -> Published:
    match = _NUMBER.fullmatch(str(value))
    if match is None:
        raise ValueError(f"published in {where} must read like 88.69 ± 0.21, got {value!r}")
    mean, deviation = match.groups()
    return Published(float(mean), None if deviation is None else float(deviation))


def _embeddings(values: Any, source: str) -> tuple[str, ...]:
    if not isinstance(values, list | None):
        raise ValueError(
            f"embeddings in {source} must be a list like [raw-tsne-3d], got {values!r}"
        )
    for value in values or ():
        if not re.fullmatch(r"(raw|whitened)-(tsne|pca|umap)-[23]d", str(value)):
            raise ValueError(f"embeddings in {source} must read like raw-tsne-3d, got {value!r}")
    return tuple(values or ())


def _score(text: str, where: str) -> str:
    if re.search(r"[{}]", text.replace("{space}", "")):
        raise ValueError(f"score in {where} may hold {{space}} and no other braces, got {text!r}")
    return text


def _flag(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    # Of a text such as "no", Python would make a yes.
    if not isinstance(value, bool):
        raise ValueError(f"{key} in {where} must be true or false, got {value!r}")
    return value


def _mapping(raw: Any, where: str, known: set[str]) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must hold `name: value` lines, got {type(raw).__name__}")
    for key in raw:
        check_choice(f"key in {where}", key, known)
    return raw


def _items(given: Mapping[str, Any], key: str, where: str) -> ItemsView[str, Any]:
    value = given.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} of {where} must hold `name: value` lines, got {value!r}")
    # YAML reads some names as numbers or as yes and no.
    return {str(name): each for name, each in value.items()}.items()
