"""``torchlace reproduce``."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

# Loads what is heavy when it is first used, so that --help answers at once.
from torchlace import experiments as grids
from torchlace._files import write_whole
from torchlace._text import counted
from torchlace._values import check_choice
from torchlace.cli.common import (
    Device,
    Imports,
    experiments,
    plain_errors,
    print_json,
    print_table,
    say,
    say_lines,
)
from torchlace.cli.progress import reporting
from torchlace.experiments.cells import State, duration, grid_status, longest_first, reason
from torchlace.runs import Run
from torchlace.runs.files import CONFIG

PICTURES = (".png", ".svg")
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".jsonl": "jsonl"}


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment (see --list), or your own YAML file.", autocompletion=experiments
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None, Option(help="Only these, separated by commas; repeatable.")
    ] = None,
    backbones: Annotated[list[str] | None, Option(help="Only these, likewise.")] = None,
    methods: Annotated[list[str] | None, Option(help="Only these rows or heads, likewise.")] = None,
    seeds: Annotated[int | None, Option(help="How many", show_default="the experiment's")] = None,
    protocol: Annotated[
        str | None, Option(help="native or paper (224 px)", show_default="native")
    ] = None,
    max_epochs: Annotated[
        int | None, Option(help="At most so many epochs", show_default="the experiment's")
    ] = None,
    root: Annotated[Path | None, Option(help="Where packs of data lie.")] = None,
    imports: Imports = None,
    runs: Annotated[Path, Option(help="Folder of the run directories.")] = Path("runs/reproduce"),
    results: Annotated[
        Path | None, Option(help="Show lines of results (.jsonl or a folder of them), run nothing.")
    ] = None,
    missing: Annotated[
        bool, Option("--missing", help="With --results: run what they lack.")
    ] = False,
    show: Annotated[
        bool, Option("--show", help="Show what the run directories hold, run nothing.")
    ] = False,
    jobs: Annotated[int, Option(min=1, help="Runs at a time on each device.")] = 1,
    engine: Annotated[str, Option(help="local or ray")] = "local",
    device: Device = "auto",
    compile: Annotated[
        bool, Option("--compile", help="Compile the backbones by torch.compile.")
    ] = False,
    retry_failed: Annotated[bool, Option("--retry-failed", help="Run failed ones again.")] = False,
    as_list: Annotated[bool, Option("--list", help="List the experiments.")] = False,
    as_status: Annotated[
        bool, Option("--status", help="Say what is done, running, failed, missing.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="List the runs that would be started.")
    ] = False,
    form: Annotated[
        str | None,
        Option(
            "--format",
            help="terminal, markdown, latex, csv, html, jsonl (the runs)",
            show_default="by --out",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="File to write; .png or .svg draws features, or curves."),
    ] = None,
) -> None:
    """Run a table or figure of the paper, or a grid of your own, and show it.

    Finished runs are skipped and killed ones go on; Ctrl-C lets every run finish its epoch.
    """
    with plain_errors():
        if as_list:
            _list()
            return
        if name is None:
            raise ValueError("name an experiment; torchlace reproduce --list shows them")
        if missing and results is None:
            raise ValueError("--missing runs what lines of results lack: name them by --results")
        form = _check_form(form, out)
        settings: dict[str, Any] = {"protocol": protocol, "epochs": max_epochs, "imports": imports}
        settings |= {"root": root and str(root), "compile": compile or None}
        settings |= {"device": None if device == "auto" else device}
        experiment = grids.load_experiment(name).select(
            datasets=_names(datasets),
            backbones=_names(backbones),
            methods=_names(methods),
            seeds=seeds,
            **{key: value for key, value in settings.items() if value is not None},
        )
        grid = _Grid(experiment, runs, grids.read_lines(results) if results is not None else {})
        looked = dry_run or as_status
        lines_only = results is not None and not (missing or show or looked)
        train = not (lines_only or show or looked)
        if dry_run or train:
            grids.require_backbones(experiment)
        if not lines_only:
            grids.require_same_data(grid.tasks, runs, closely=train)
        if dry_run:
            _foretell(grid, retry_failed)
        if looked:
            _status(grid, jobs)
            return
        outcome = _run(grid, engine, jobs, device, retry_failed) if train else None
        try:
            _show(grid, None if lines_only else runs, form, out)
        finally:
            code = _conclude(outcome) if outcome is not None else 0
    raise typer.Exit(code)


@dataclass
class _Grid:
    """The runs that a command is about, and the lines of results that it was given."""

    experiment: grids.Experiment
    runs: Path
    lines: Mapping[str, grids.Record]

    def __post_init__(self) -> None:
        self.tasks = grids.unique_tasks(self.experiment.cells())
        runnable = [task for task in self.tasks if not task.archived]
        lines = ((task, self.lines.get(task.name)) for task in runnable)
        self.wanted = [task for task, line in lines if line is None or not line.has(task)]
        self.known = len(runnable) - len(self.wanted)


def _check_form(form: str | None, out: Path | None) -> str:
    """The format; an error if a file can't be made, before anything is trained for it."""
    if out is not None:
        if form is not None and out.suffix in PICTURES:
            raise ValueError(
                f"{out.name} is a picture: leave out --format {form}, or name a text file"
            )
        if out.is_dir():
            raise ValueError(f"{out} is a folder: name a file in it, such as {out / 'table.md'}")
        for folder in out.parents:
            if folder.exists() and not folder.is_dir():
                raise ValueError(f"{out} can't be written: {folder} is a file, not a folder")
    if form is not None:
        return check_choice("format", form, (*grids.FORMATS, "jsonl"))
    if out is None or out.suffix in ("", ".txt", *PICTURES):
        return "terminal"
    if out.suffix not in SUFFIXES:
        known = ", ".join([*SUFFIXES, ".txt", *PICTURES])
        raise ValueError(f"{out.name} names no format: end it in {known}, or give --format")
    return SUFFIXES[out.suffix]


def _list() -> None:
    rows = []
    for name in grids.experiment_names():
        experiment = grids.load_experiment(name)
        rows.append([name, experiment.title, str(len(grids.unique_tasks(experiment.cells())))])
    print_table("experiments", ["name", "what it shows", "runs"], rows)
    say("Yours: torchlace reproduce FILE.yaml, written like those in torchlace/experiments.")


def _foretell(grid: _Grid, retry_failed: bool) -> None:
    """Name the runs that would be started."""
    started = {State.MISSING, State.CUT} | ({State.FAILED} if retry_failed else set())
    for name, state in grid_status(grid.wanted, grid.runs).states.items():
        if state in started:
            say(f"{name}{'  (goes on)' if Run(grid.runs / name).begun else ''}")


def _status(grid: _Grid, jobs: int) -> None:
    """Say how many runs are in each state, what ails those that failed, and what is left."""
    status = grid_status(grid.wanted, grid.runs)
    counts = [f"{grid.known} in the results"] if grid.known else []
    counts += [f"{status.count(state)} {state}" for state in State if status.count(state)]
    runs = counted(grid.known + len(grid.wanted), "run")
    say(f"{grid.experiment.name}: {runs}: {', '.join(counts)}")
    for name, state in status.states.items():
        run = Run(grid.runs / name)
        if state is State.FAILED:
            say(f"  {name}: failed: {reason(run.failure())}")
        elif state is State.RUNNING:
            say(f"  {name}: running, {counted(len(run.epochs()), 'epoch')} done")
    if status.seconds:
        left = duration(status.seconds / jobs)
        say(f"about {left} left with {jobs} at a time, going by those that are done")


def _run(grid: _Grid, engine: str, jobs: int, device: str, retry_failed: bool) -> grids.Outcome:
    """Train what is missing."""
    if grid.tasks and all(task.config.device == "cpu" for task in grid.tasks):
        device = "cpu"
    jobs = 1 if grid.experiment.alone else jobs
    took = {name: each.line["seconds"] for name, each in grid.lines.items() if each.finished}
    chosen = grids.make_engine(engine, jobs=jobs, device=device)
    tasks = longest_first(grid.wanted, took)
    with reporting() as reporter:
        options: dict[str, Any] = {"retry_failed": retry_failed, "reporter": reporter}
        return grids.run_grid(tasks, grid.runs, chosen, **options)


def _show(grid: _Grid, runs: Path | None, form: str, out: Path | None) -> None:
    """Show what the runs have come to, in the lines alone where there are no ``runs``."""
    records = grids.collect_records(grid.tasks, grid.experiment.name, runs, grid.lines)
    if out is not None and out.suffix in PICTURES:
        _draw(grid.experiment, records, out)
        return
    if form == "jsonl":
        text = grids.to_lines(records.values())
        _mention_others(grid, runs, sum(record.running for record in records.values()))
    else:
        width = shutil.get_terminal_size((240, 24)).columns
        styled = out is None and sys.stdout.isatty()
        table = grids.make_table(grid.experiment, records)
        folder = out.parent if out else "."
        text = grids.render(table, form, width=width, styled=styled, folder=folder)
    if out is not None:
        write_whole(out, lambda file: file.write(text.encode()), folders=True)
        say(f"wrote {out}", err=True)
    elif form == "terminal":  # which shows names as they can be printed, in styles that must stay
        print(text, end="")
    elif form == "jsonl":
        for line in filter(None, text.split("\n")):
            print_json(json.loads(line))
    else:
        say_lines(text.removesuffix("\n"))


def _mention_others(grid: _Grid, runs: Path | None, at_work: int) -> None:
    """Say which runs of the folder the lines leave out: whoever moves them elsewhere must know."""
    if at_work:
        say(f"not in these lines: {counted(at_work, 'run')} at work", err=True)
    found = {path.parent.name for path in runs.glob(f"*/{CONFIG}")} if runs else set()
    others = sorted(found - {task.name for task in grid.tasks})
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        say(
            f"not in these lines: {counted(len(others), 'run')} of {runs}, of other tables, "
            f"methods or protocols: {', '.join(others[:3])}{more}",
            err=True,
        )


def _draw(experiment: grids.Experiment, records: Mapping[str, grids.Record], out: Path) -> None:
    from torchlace.report import curve_panels, embedding_panels, save

    if experiment.embeddings:
        shown = grids.collect_panels(experiment, records)
        figure = embedding_panels(shown.panels, shown.labels, shown.class_names)
    else:
        figure = curve_panels(grids.collect_curves(experiment, records))
    save(figure, out)
    say(f"wrote {out}", err=True)


def _conclude(outcome: grids.Outcome) -> int:
    """Say what is left to do; the exit code."""
    if outcome.elsewhere:
        say(f"at work in another process: {counted(len(outcome.elsewhere), 'run')}", err=True)
    for name, error in outcome.failed.items():
        say(f"failed: {name}: {reason(error)}", err=True)
    if outcome.failed:
        failed = counted(len(outcome.failed), "run")
        say(f"{failed} failed; --retry-failed starts again what failed", err=True)
    if outcome.interrupted:
        say("stopped; the same command goes on from there", err=True)
        return 130
    return 1 if outcome.failed else 0


def _names(given: list[str] | None) -> list[str]:
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]
