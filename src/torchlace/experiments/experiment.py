"""An experiment as data: rows, columns, settings, and what was published."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchlace import heads
from torchlace._checks import check_choice, check_count
from torchlace.data import KNOWN, data_root, near_sources
from torchlace.experiments.cells import Cell, Task, canonical
from torchlace.training import TrainConfig

Settings = dict[str, Any]


@dataclass(frozen=True)
class Published:
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
    """

    name: str
    label: str
    settings: Settings
    published: dict[str, Published] = field(default_factory=dict)
    seeds: int | None = None
    space: str = "raw_sphere"


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
    """

    name: str
    label: str
    settings: Settings
    score: str
    best: str = "highest"
    digits: int = 2
    inspect: bool = False


@dataclass(frozen=True)
class Experiment:
    """Rows × columns × seeds, read by :func:`torchlace.experiments.load_experiment`.

    Attributes:
        name: name of the file.
        title: of the table.
        about: what a reader should know.
        rows: the methods.
        columns: what they are compared on.
        settings: of :class:`TrainConfig`, for all cells.
        seeds: how many.
        first_seed: the first of them.
        baseline: the row that the others are tested against.
        alone: whether runs are timed, so that a device has one at a time.
        embeddings: pictures of the features that are needed, ``SPACE-METHOD-DIMd``.
        source: what published numbers are from, as tables say it.
        overrides: settings that win over those of rows and columns.

    Example:
        >>> from torchlace.experiments import load_experiment
        >>> table = load_experiment("table1")
        >>> len(table.rows), len(table.columns), len(table.cells())
        (9, 5, 135)
    """

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    settings: Settings
    seeds: int = 3
    first_seed: int = 0
    baseline: str | None = None
    alone: bool = False
    embeddings: tuple[str, ...] = ()
    source: str = "published"
    overrides: Settings = field(default_factory=dict)

    def cells(self) -> list[Cell]:
        """Every place of the table with its run, all settings checked."""
        return [
            Cell(row.name, column.name, self._task(row, column, self.first_seed + seed))
            # Seed by seed: a grid that is stopped half-way has a whole table of fewer seeds.
            for seed in range(max(row.seeds or self.seeds for row in self.rows))
            for column in self.columns
            for row in self.rows
            if seed < (row.seeds or self.seeds)
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
            9
        """
        rows, columns = self.rows, self.columns
        changed = dataclasses.replace(self, overrides={**self.overrides, **settings})
        for what, setting, wanted in (
            ("data set", "data", datasets),
            ("backbone", "backbone", backbones),
        ):
            if wanted:
                known = {getattr(cell.task.config, setting) for cell in changed.cells()}
                for name in wanted:
                    check_choice(f"{what} of {self.name}", name, known)
                rows = tuple(r for r in rows if r.settings.get(setting, wanted[0]) in wanted)
                columns = tuple(c for c in columns if c.settings.get(setting, wanted[0]) in wanted)
        if methods:
            named = {name for method in methods for name in self._rows_of(method)}
            rows = tuple(row for row in rows if row.name in named)
        if seeds is not None:
            check_count("seeds", seeds)
            rows = tuple(dataclasses.replace(row, seeds=None) for row in rows)
        return dataclasses.replace(changed, rows=rows, columns=columns, seeds=seeds or self.seeds)

    def score(self, row: Row, column: Column) -> str:
        """The field that a cell shows."""
        return column.score.format(space=row.space)

    def _rows_of(self, method: str) -> list[str]:
        names = [row.name for row in self.rows]
        if method in names:
            return [method]
        by_head = [row.name for row in self.rows if self._head(row) == method]
        if not by_head:
            check_choice(f"method of {self.name}", method, {*names, *map(self._head, self.rows)})
        return by_head

    def _head(self, row: Row) -> str:
        return str({**self.settings, **row.settings}.get("head", TrainConfig.head))

    def _task(self, row: Row, column: Column, seed: int) -> Task:
        where = f"{self.name} ({row.name}, {column.name})"
        settings = {**self.settings, **column.settings, **row.settings, **self.overrides}
        config = TrainConfig.from_dict({**settings, "seed": seed}, where)
        check_choice(f"head in {where}", config.head, heads.names())
        _check_data(config, where)
        if config.head_options:
            try:
                heads.create(config.head, 64, 10, **config.head_options)
            except (TypeError, ValueError) as error:
                raise ValueError(f"head_options in {where}: {error}") from None
        return Task(canonical(config), column.inspect or bool(self.embeddings), self.embeddings)


def _check_data(config: TrainConfig, where: str) -> None:
    pack = data_root(config.root) / f"{config.data}.npz"
    known = config.data in KNOWN or Path(config.data).expanduser().exists() or pack.is_file()
    if not known:
        near = near_sources(config.data, config.root)
        check_choice(f"data set in {where}", config.data, {*KNOWN, *near})
