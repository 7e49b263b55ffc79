"""Ctrl-C before the work begins: a process that ends at once, and says nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from experiments.grids import GRID
from training.processes import QUIET

from torchlace import cli

# A module that reports when it is half imported, and swallows what is raised in it.
SLOW = """
import pathlib, time
pathlib.Path("importing").touch()
try:
    time.sleep(60)
except BaseException:
    pass
"""


def start(*arguments, folder, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "torchlace.cli", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **QUIET, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def interrupted(process, condition):
    """Ctrl-C in the terminal reaches the process and all that it has started."""
    limit = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("torch", ("train", "--run", "run")),
        ("torch", ("predict", "run", "image.png")),
        ("torch", ("reproduce", "quick")),
        ("torch", ("data", "list")),
        ("torch", ("heads",)),
        ("rich", ("--help",)),
        ("typer", ("train",)),
    ],
)
def test_while_modules_load(module, arguments, tmp_path):
    package = tmp_path / "slow" / module
    package.mkdir(parents=True)
    # What is imported before any command has to raise; what a command imports may swallow it.
    swallowed = SLOW if module == "torch" else SLOW.replace("pass", "raise")
    (package / "__init__.py").write_text(swallowed)
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    process = start(*arguments, folder=tmp_path, PYTHONPATH=path)
    ended = interrupted(process, (tmp_path / "importing").exists)
    assert ended == (cli.STOPPED, "", "")
    assert not (tmp_path / "run").exists()


def test_while_the_process_that_cells_are_forked_from_loads(tmp_path):
    """It starts with the first cell, whose directory is there by then."""
    (tmp_path / "mine.yaml").write_text(GRID)
    process = start("reproduce", "mine.yaml", folder=tmp_path)
    runs = tmp_path / "runs" / "reproduce"
    code, out, err = interrupted(process, lambda: any(Path(runs).glob("*/.claim")))
    assert code == cli.STOPPED
    first, *others = err.splitlines()
    assert first.endswith(" starts")
    assert others[0] == "stopping: 1 run finishes its epoch; once more ends it now"
    assert others[-1] == "stopped; the same command goes on from there"
    assert "Traceback" not in out + err
    assert all("Traceback" not in log.read_text() for log in runs.glob("*/log.txt"))


def test_elsewhere_it_is_the_interruption_that_it_was():
    with pytest.raises(KeyboardInterrupt):
        cli._interrupt(signal.SIGINT, sys._getframe())
