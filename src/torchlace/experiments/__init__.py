"""Grids of runs: the paper's tables and one's own, as data; engines that run them; statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlace._registry import lazy_names

if TYPE_CHECKING:
    from torchlace.experiments.cells import Cell, State, Task, grid_status, unique_tasks
    from torchlace.experiments.engines import make_engine
    from torchlace.experiments.experiment import Experiment, require_backbones
    from torchlace.experiments.grid import Outcome, require_same_data, run_grid
    from torchlace.experiments.library import experiment_names, load_experiment
    from torchlace.experiments.pictures import Panels, collect_curves, collect_panels
    from torchlace.experiments.records import Record, collect_records, read_lines, to_lines
    from torchlace.experiments.rendering import FORMATS, render
    from torchlace.experiments.tables import (
        Entry,
        Table,
        holm,
        make_table,
        mean_interval,
        paired_test,
    )

__all__ = [
    "FORMATS",
    "Cell",
    "Entry",
    "Experiment",
    "Outcome",
    "Panels",
    "Record",
    "State",
    "Table",
    "Task",
    "collect_curves",
    "collect_panels",
    "collect_records",
    "experiment_names",
    "grid_status",
    "holm",
    "load_experiment",
    "make_engine",
    "make_table",
    "mean_interval",
    "paired_test",
    "read_lines",
    "render",
    "require_backbones",
    "require_same_data",
    "run_grid",
    "to_lines",
    "unique_tasks",
]

# A machine of a cluster that only starts a process loads no torch.
__getattr__ = lazy_names(
    __name__,
    {
        "cells": ("Cell", "State", "Task", "grid_status", "unique_tasks"),
        "engines": ("make_engine",),
        "experiment": ("Experiment", "require_backbones"),
        "grid": ("Outcome", "require_same_data", "run_grid"),
        "library": ("experiment_names", "load_experiment"),
        "pictures": ("Panels", "collect_curves", "collect_panels"),
        "records": ("Record", "collect_records", "read_lines", "to_lines"),
        "rendering": ("FORMATS", "render"),
        "tables": ("Entry", "Table", "holm", "make_table", "mean_interval", "paired_test"),
    },
)
