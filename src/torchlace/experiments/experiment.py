"""An experiment: rows, columns and settings, which of its cells are chosen, and what they train."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torchlace import heads
from torchlace._checks import check_choice, check_count
from torchlace._imports import import_all
from torchlace._text import setting
from torchlace.data import check_source
from torchlace.experiments.cells import Cell, Task, read_config
from torchlace.runs import TrainConfig

Settings = dict[str, Any]
_MOST_SEEDS = 10_000
_WORDS = {"data": "data set", "backbone": "backbone"}


class Published(NamedTuple):
    """What was published: a mean and, where it has one, the deviation over its runs."""

    mean: float
    deviation: float | None = None


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        name: its name in the file.
        label: how tables show it.
        settings: of :class:`TrainConfig`; they win over those of the column.
        published: by column.
        seeds: how many, where it differs from the experiment.
        space: put for ``{space}`` in the scores of the columns.
        archived: committed results show it, and it can't be run any more.
    """

    name: str
    label: str
    settings: Settings = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    seeds: int | None = None
    space: str = "raw_sphere"
    archived: bool = False


@dataclass(frozen=True)
class Column:
    """A set of images, a backbone or a score.

    Attributes:
        name: its name in the file.
        label: how tables show it.
        settings: of :class:`TrainConfig`.
        score: what is shown of a run: a field of its line of results, dots going deeper.
        best: ``highest`` or ``lowest``; ``none`` ranks nothing.
        digits: after the point.
        inspect: whether the features of its runs are examined.
        unknown: data sets of other classes that every score tells from the test images.
    """

    name: str
    label: str
    settings: Settings = field(default_factory=dict)
    score: str = "test_accuracy"
    best: str = "highest"
    digits: int = 2
    inspect: bool = False
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """Rows × columns × seeds, read by :func:`torchlace.experiments.load_experiment`.

    Attributes:
        name: name of the file.
        title: of the table.
        rows: the methods.
        columns: what they are compared on.
        about: what a reader should know.
        settings: of :class:`TrainConfig`, for all cells.
        seeds: how many.
        first_seed: the first of them.
        baseline: the row that the others are tested against.
        alone: whether runs are timed, so that a device has one at a time.
        embeddings: pictures of the features that are needed, ``SPACE-METHOD-DIMd``.
        imports: files of Python or modules that register what rows and columns name.
        source: what published numbers are from, as tables say it.
        overrides: settings that win over those of rows and columns.
        only: values of ``data`` and ``backbone`` that a cell must have, where some were chosen.

    Example:
        >>> from torchlace.experiments import load_experiment
        >>> table = load_experiment("table1")
        >>> len(table.rows), len(table.columns), len(table.cells())
        (10, 5, 150)
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    about: str = ""
    settings: Settings = field(default_factory=dict)
    seeds: int = 3
    first_seed: int = 0
    baseline: str | None = None
    alone: bool = False
    embeddings: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    source: str = "published"
    overrides: Settings = field(default_factory=dict)
    only: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """Every place of the table with its run, all settings checked."""
        seeds = {row.name: row.seeds or self.seeds for row in self.rows}
        tasks = {
            (row.name, column.name): self._task(row, column)
            for column in self.columns
            for row in self.rows
        }
        cells = (
            Cell(row, column, task.seeded(self.first_seed + seed))
            # Seed by seed: a grid that is stopped half-way has a whole table of fewer seeds.
            for seed in range(max(seeds.values()))
            for (row, column), task in tasks.items()
            if seed < seeds[row]
        )
        chosen = self.only.items()
        return [
            cell
            for cell in cells
            if all(getattr(cell.task.config, key) in names for key, names in chosen)
        ]

    def select(
        self,
        *,
        datasets: Sequence[str] = (),
        backbones: Sequence[str] = (),
        methods: Sequence[str] = (),
        seeds: int | None = None,
        **settings: Any,
    ) -> Experiment:
        """The same with some sets, backbones and methods only, other seeds, other settings.

        Example:
            >>> from torchlace.experiments import load_experiment
            >>> small = load_experiment("table1").select(datasets=["svhn"], seeds=1)
            >>> len(small.cells())
            10
        """
        TrainConfig.from_dict(settings, f"what is asked of {self.name}")
        changed = dataclasses.replace(self, overrides={**self.overrides, **settings})
        wanted = {"data": tuple(datasets), "backbone": tuple(backbones)}
        only = {key: names for key, names in wanted.items() if names}
        for key, names in only.items():
            known = {getattr(cell.task.config, key) for cell in changed.cells()}
            for name in names:
                check_choice(f"{_WORDS[key]} of {self.name}", name, known)
        if methods:
            named = {name for method in methods for name in self._rows_of(method)}
            rows = tuple(row for row in self.rows if row.name in named)
            changed = dataclasses.replace(changed, rows=rows)
        if seeds is not None:
            check_seeds("seeds", seeds)
            rows = tuple(dataclasses.replace(row, seeds=None) for row in changed.rows)
            changed = dataclasses.replace(changed, rows=rows, seeds=seeds)
        return changed._restricted(only, methods) if only else changed

    def score(self, row: Row, column: Column) -> str:
        """The field that a cell shows."""
        return column.score.format(space=row.space)

    def _restricted(self, only: dict[str, tuple[str, ...]], methods: Sequence[str]) -> Experiment:
        """With the cells that have these values, and the rows and columns that have such a cell."""
        chosen = dataclasses.replace(self, only={**self.only, **only})
        cells = chosen.cells()
        if not cells:
            asked = {_WORDS[key]: names for key, names in only.items()}
            asked |= {"method": tuple(methods)} if methods else {}
            said = [f"{what} {' or '.join(names)}" for what, names in asked.items()]
            raise ValueError(
                f"no run of {self.name} has {' and '.join(said)}: leave out one of them, or see "
                f"by {setting('dry_run', True)} which runs there are"
            )
        used = {cell.row for cell in cells}, {cell.column for cell in cells}
        rows = tuple(row for row in self.rows if row.name in used[0])
        columns = tuple(column for column in self.columns if column.name in used[1])
        return dataclasses.replace(chosen, rows=rows, columns=columns)

    def _rows_of(self, method: str) -> list[str]:
        """The row of this name, or all those with this head."""
        settings = {row.name: {**self.settings, **row.settings} for row in self.rows}
        heads = {name: str(each.get("head", TrainConfig.head)) for name, each in settings.items()}
        if method in heads:
            return [method]
        check_choice(f"method of {self.name}", method, {*heads, *heads.values()})
        return [name for name, head in heads.items() if head == method]

    def _task(self, row: Row, column: Column) -> Task:
        """The run of a cell with any seed, its settings checked."""
        where = f"{self.name} ({row.name}, {column.name})"
        settings = {**self.settings, **column.settings, **row.settings, **self.overrides}
        code = import_all([*self.imports, *settings.get("imports", ())])
        config = read_config({**settings, "imports": [*code]}, where)
        # Equal runs have equal settings: the backbone goes by its name.
        config = dataclasses.replace(config, backbone=config.backbone_name)
        check_choice(f"head in {where}", config.head, heads.names())
        for source in (config.data.replace("{seed}", "0"), *column.unknown):
            check_source(source, config.root, what=f"data set in {where}")
        if config.head_options and not row.archived:
            try:
                heads.create(config.head, 64, 10, **config.head_options)
            except (TypeError, ValueError) as error:
                raise ValueError(f"head_options in {where}: {error}") from None
        inspect = column.inspect or bool(self.embeddings)
        kind, _, learned = self.score(row, column).rpartition(".")[0].partition(".")
        later = (learned,) if kind == "later" and not row.archived else ()
        return Task(config, inspect, self.embeddings, column.unknown, later, row.archived)


def check_seeds(name: str, count: int) -> int:
    """Return ``count`` if a grid can have so many seeds, or raise naming ``name``."""
    if check_count(name, count) > _MOST_SEEDS:
        raise ValueError(f"{name} must be at most {_MOST_SEEDS:,}, got {count}")
    return count


def require_backbones(experiment: Experiment) -> None:
    """Raise unless the backbones of all runs are known, as far as their libraries are here.

    Not asked of who only looks at results: the libraries take a second or more to import.

    Example:
        >>> from torchlace.experiments import load_experiment
        >>> require_backbones(load_experiment("quick"))
    """
    from torchlace.models import backbone_names

    places: dict[str, Cell] = {}
    for cell in experiment.cells():
        places.setdefault(cell.task.config.backbone, cell)
    for name, cell in places.items():
        try:
            known = backbone_names(name)
        except ImportError:  # its run will say what to install
            continue
        check_choice(f"backbone in {experiment.name} ({cell.row}, {cell.column})", name, known)
