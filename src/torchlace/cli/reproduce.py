"""``torchlace reproduce``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchlace._text import counted
from torchlace.cli.common import (
    Imports,
    experiments,
    plain_errors,
    print_json,
    print_table,
    say,
    say_lines,
)
from torchlace.runs.files import CONFIG

if TYPE_CHECKING:
    from torchlace.experiments import Experiment, Outcome, Record, Task

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
        list[str] | None, typer.Option(help="Only these, separated by commas; repeatable.")
    ] = None,
    backbones: Annotated[list[str] | None, typer.Option(help="Only these, likewise.")] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="Only these rows or heads, likewise.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many", show_default="the experiment's")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="native or paper (224 px)", show_default="native")
    ] = None,
    max_epochs: Annotated[
        int | None, typer.Option(help="At most so many epochs", show_default="the experiment's")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    imports: Imports = None,
    runs: Annotated[Path, typer.Option(help="Folder of the run directories.")] = Path(
        "runs/reproduce"
    ),
    results: Annotated[
        Path | None,
        typer.Option(help="Show lines of results (.jsonl or a folder of them), run nothing."),
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="With --results: run what they lack.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Show what the run directories hold, run nothing.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time on each device.")] = 1,
    engine: Annotated[str, typer.Option(help="local or ray")] = "local",
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the backbones by torch.compile.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run failed ones again.")
    ] = False,
    as_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    as_status: Annotated[
        bool, typer.Option("--status", help="Say what is done, running, failed, missing.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs that would be started.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="terminal, markdown, latex, csv, html, jsonl (the runs)",
            show_default="by --out",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write; .png or .svg draws features, or curves.",
        ),
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
        from torchlace._checks import check_choice
        from torchlace.experiments import FORMATS, load_experiment, read_lines, unique_tasks
        from torchlace.experiments.experiment import require_backbones
        from torchlace.experiments.sources import require_same_data
        from torchlace.experiments.state import longest_first

        if missing and results is None:
            raise ValueError("--missing runs what lines of results lack: name them by --results")
        _check_out(out, form)
        form = form or _form(out)
        check_choice("format", form, (*FORMATS, "jsonl"))
        check_choice("engine", engine, ("local", "ray"))
        experiment = load_experiment(name).select(
            datasets=_names(datasets),
            backbones=_names(backbones),
            methods=_names(methods),
            seeds=seeds,
            **_given(protocol=protocol, epochs=max_epochs, root=root and str(root), device=device),
            **({"compile": True} if compile else {}),
            **({"imports": imports} if imports else {}),
        )
        tasks = unique_tasks(experiment.cells())
        lines = read_lines(results) if results is not None else {}
        runnable = [task for task in tasks if not task.archived]
        wanted = [task for task in runnable if not _known(lines.get(task.name))]
        looked = dry_run or as_status
        lines_only = results is not None and not (missing or show or looked)
        to_run = not (lines_only or show or looked)
        if dry_run or to_run:
            require_backbones(experiment)
        if not lines_only:
            require_same_data(tasks, runs, closely=to_run)
        if dry_run:
            _foretell(wanted, runs, retry_failed)
        if looked:
            _status(experiment, runnable, wanted, runs, jobs)
            return
        outcome = None
        took = {name: line.line["seconds"] for name, line in lines.items() if line.finished}
        if to_run:
            options = {"jobs": 1 if experiment.alone else jobs, "device": _device(tasks, device)}
            outcome = _run(longest_first(wanted, took), runs, engine, retry_failed, options)
        try:
            _show(experiment, tasks, None if lines_only else runs, lines, form, out)
        finally:
            code = _conclude(outcome) if outcome is not None else 0
    raise typer.Exit(code)


def _form(out: Path | None) -> str:
    if out is None or out.suffix in ("", ".txt", *PICTURES):
        return "terminal"
    if out.suffix not in SUFFIXES:
        known = ", ".join([*SUFFIXES, ".txt", *PICTURES])
        raise ValueError(f"{out.name} names no format: end it in {known}, or give --format")
    return SUFFIXES[out.suffix]


def _check_out(out: Path | None, form: str | None) -> None:
    """Raise if a file can't be made there, before anything is trained for it."""
    if out is None:
        return
    if form is not None and out.suffix in PICTURES:
        raise ValueError(f"{out.name} is a picture: leave out --format {form}, or name a text file")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: name a file in it, such as {out / 'table.md'}")
    for folder in out.parents:
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"{out} can't be written: {folder} is a file, not a folder")


def _list() -> None:
    from torchlace.experiments import experiment_names, load_experiment, unique_tasks

    rows = []
    for name in experiment_names():
        experiment = load_experiment(name)
        count = len(unique_tasks(experiment.cells()))
        rows.append([name, experiment.title, str(count)])
    print_table("experiments", ["name", "what it shows", "runs"], rows)
    say("Yours: torchlace reproduce FILE.yaml, written like those in torchlace/experiments.")


def _foretell(wanted: Sequence[Task], runs: Path, retry_failed: bool) -> None:
    from torchlace.experiments import State, grid_status
    from torchlace.runs import Run

    started = {State.MISSING, State.CUT} | ({State.FAILED} if retry_failed else set())
    for name, state in grid_status(wanted, runs).states.items():
        if state in started:
            say(f"{name}{'  (goes on)' if Run(runs / name).begun else ''}")


def _status(
    experiment: Experiment, tasks: Sequence[Task], wanted: Sequence[Task], runs: Path, jobs: int
) -> None:
    from torchlace.experiments import State, grid_status
    from torchlace.experiments.grid import duration

    status = grid_status(wanted, runs)
    known = len(tasks) - len(wanted)
    counts = [f"{status.count(state)} {state}" for state in State if status.count(state)]
    if known:
        counts.insert(0, f"{known} in the results")
    say(f"{experiment.name}: {counted(len(tasks), 'run')}: {', '.join(counts)}")
    for name, state in status.states.items():
        if state in (State.RUNNING, State.FAILED):
            say(f"  {name}: {_account(runs / name, state)}")
    if status.seconds:
        left = duration(status.seconds / jobs)
        say(f"about {left} left with {jobs} at a time, going by those that are done")


def _account(path: Path, state: Any) -> str:
    from torchlace.experiments.state import State, reason
    from torchlace.runs import Run

    if state is State.FAILED:
        return f"failed: {reason(Run(path).failure())}"
    return f"running, {counted(len(Run(path).epochs()), 'epoch')} done"


def _run(
    tasks: Sequence[Task], runs: Path, engine: str, retry_failed: bool, options: dict[str, Any]
) -> Outcome:
    from torchlace.experiments import State, make_engine, run_grid
    from torchlace.experiments.cells import require_data, require_layouts
    from torchlace.experiments.state import task_state

    chosen = make_engine(engine, **options)
    if engine == "local":
        left = [task for task in tasks if task_state(task, runs) is not State.DONE]
        require_data(left)
        require_layouts(left)
    return run_grid(
        tasks,
        runs,
        chosen,
        retry_failed=retry_failed,
        report=partial(say, err=True),
    )


def _show(
    experiment: Experiment,
    tasks: Sequence[Task],
    runs: Path | None,
    lines: dict[str, Record],
    form: str,
    out: Path | None,
) -> None:
    import shutil

    from torchlace._files import write_whole
    from torchlace.experiments import collect_records, make_table, render, to_lines

    records = collect_records(tasks, experiment.name, runs, lines)
    if out is not None and out.suffix in PICTURES:
        _draw(experiment, records, out)
        return
    if form == "jsonl":
        text = to_lines(records.values())
        at_work = sum(record.running for record in records.values())
        if at_work:
            say(f"not in these lines: {counted(at_work, 'run')} at work", err=True)
        _mention_others(tasks, runs)
    else:
        width = shutil.get_terminal_size((240, 24)).columns
        styled = out is None and sys.stdout.isatty()
        folder = out.parent if out else Path()
        table = make_table(experiment, records)
        text = render(table, form, width=width, styled=styled, folder=folder)
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


def _mention_others(tasks: Sequence[Task], runs: Path | None) -> None:
    """Say which runs of the folder the lines leave out: whoever moves them elsewhere must know."""
    known = {task.name for task in tasks}
    found = sorted(path.parent.name for path in runs.glob(f"*/{CONFIG}")) if runs else []
    others = [name for name in found if name not in known]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        say(
            f"not in these lines: {counted(len(others), 'run')} of {runs}, of other tables, "
            f"methods or protocols: {', '.join(others[:3])}{more}",
            err=True,
        )


def _draw(experiment: Experiment, records: dict[str, Record], out: Path) -> None:
    from torchlace.experiments import collect_curves, collect_panels
    from torchlace.report import curve_panels, embedding_panels, save

    if experiment.embeddings:
        shown = collect_panels(experiment, records)
        figure = embedding_panels(shown.panels, shown.labels, shown.class_names)
    else:
        figure = curve_panels(collect_curves(experiment, records))
    save(figure, out)
    say(f"wrote {out}", err=True)


def _conclude(outcome: Outcome) -> int:
    """Say what is left to do; the exit code."""
    from torchlace.experiments.state import reason

    if outcome.elsewhere:
        elsewhere = counted(len(outcome.elsewhere), "run")
        say(f"at work in another process: {elsewhere}", err=True)
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


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value not in (None, "auto")}


def _known(record: Record | None) -> bool:
    return record is not None and record.finished


def _device(tasks: Sequence[Task], device: str) -> str:
    cpu = tasks and all(task.config.device == "cpu" for task in tasks)
    return "cpu" if cpu else device
