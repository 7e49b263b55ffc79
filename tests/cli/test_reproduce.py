"""`torchlace reproduce` from the outside: real grids on the digits, killed and started again.

Commands that nobody kills run in this process: what cells are forked from is started once for all.
"""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from cli.inside import torchlace
from cli.pictures import as_npz, write
from experiments.grids import GRID
from training.processes import QUIET, Command
from training.processes import torchlace as forked

from torchlace.runs import Lock
from torchlace.runs.files import LOCK

RESULTS = Path(__file__).parents[2] / "results"
TABLE1 = f"{RESULTS}/table1.jsonl"
PATIENCE = 120


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.yaml").write_text(GRID)
    return tmp_path


def finished(folder):
    return {
        path.parent.name: path.stat().st_mtime_ns
        for path in (folder / "runs" / "reproduce").glob("*/result.json")
    }


def wait_for(condition):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_grid_killed_half_way_is_finished_by_two_that_share_the_work(folder):
    command = ("reproduce", folder / "mine.yaml", "--max-epochs", "4")
    killed = Command(*command, folder=folder)
    wait_for(lambda: finished(folder))
    killed.send(signal.SIGKILL)
    assert killed.done().code == -signal.SIGKILL
    first = finished(folder)
    assert 1 <= len(first) < 4

    there = ("--runs", folder / "runs" / "reproduce")
    both = [Command(*command, *there, folder=folder / name) for name in ("one", "two")]
    done = [each.done() for each in both]
    assert [each.code for each in done] == [0, 0], done
    assert len(finished(folder)) == 4
    assert first.items() <= finished(folder).items()
    said = [line.split() for each in done for line in each.err.splitlines()]
    begun = [words[0] for words in said if words[1:] in (["starts"], ["goes", "on"])]
    assert begun
    assert len(begun) == len(set(begun))
    assert not set(begun) & set(first)

    last = torchlace(*command, folder=folder)
    assert (last.code, last.err) == (0, "")
    assert "Softmax" in last.out
    assert "published 90.50 ± 0.50" in last.out
    assert "n = 2" in last.out


def test_ctrl_c_finishes_the_epochs_and_the_same_command_goes_on(folder):
    command = ("reproduce", "mine.yaml", "--max-epochs", "60", "--seeds", "1", "--jobs", "2")
    started = Command(*command, folder=folder)
    runs = folder / "runs" / "reproduce"
    wait_for(lambda: len(list(runs.glob("*/metrics.csv"))) == 2)
    running = torchlace(*command, "--status", folder=folder)
    started.send(signal.SIGINT)
    stopped = started.done()
    assert stopped.code == 130, stopped
    assert "stopping: 2 runs finish their epoch; once more ends them now" in stopped.err
    assert stopped.err.endswith("stopped; the same command goes on from there\n")
    assert "2 runs: 2 running" in running.out
    assert re.search(r"running, \d+ epochs? done", running.out)
    assert not finished(folder)
    assert len(list(runs.glob("*/last.ckpt"))) == 2

    cut = torchlace(*command, "--show", "--format", "jsonl", folder=folder)
    assert [json.loads(line)["status"] for line in cut.out.splitlines()] == ["cut", "cut"]
    dry = torchlace(*command, "--dry-run", folder=folder)
    assert dry.out.count("(goes on)") == 2
    assert dry.out.endswith("mine: 2 runs: 2 cut\n")
    again = torchlace(*command, folder=folder)
    assert again.code == 0, again
    assert again.err.count(" goes on\n") == 2
    assert all("resuming" in path.read_text() for path in runs.glob("*/log.txt"))
    done = torchlace(*command, "--status", folder=folder)
    assert done.out == "mine: 2 runs: 2 done\n"

    lines = torchlace(*command, "--format", "jsonl", "-o", "out/mine.jsonl", folder=folder)
    assert lines.err == "wrote out/mine.jsonl\n"
    kept = [json.loads(line) for line in (folder / "out" / "mine.jsonl").read_text().splitlines()]
    assert [line["head"] for line in kept] == ["softmax", "lace"]
    part = torchlace(*command, "--methods", "lace", "--format", "jsonl", folder=folder)
    assert len(part.out.splitlines()) == 1
    assert part.err == (
        f"not in these lines: 1 run of runs/reproduce, of other tables, methods or "
        f"protocols: {kept[0]['run']}\n"
    )
    # From the lines alone, with the runs gone, and nothing is run.
    runs.rename(folder / "away")
    shown = torchlace(*command, "--results", "out", "--format", "csv", folder=folder)
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [float(row["mean"]) for row in rows] == [line["test_accuracy"] for line in kept]
    assert [row["runs"] for row in rows] == ["out/mine.jsonl:1", "out/mine.jsonl:2"]
    drawn = torchlace(*command, "--results", "out", "-o", "curves.png", folder=folder)
    assert (drawn.code, drawn.err) == (0, "wrote curves.png\n")
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    more = ("reproduce", "mine.yaml", "--max-epochs", "60", "--results", "out", "--missing")
    missing = torchlace(*more, "--dry-run", folder=folder)
    assert missing.out.endswith("mine: 4 runs: 2 in the results, 2 missing\n")
    assert missing.out.count("-s1\n") == 2
    assert not runs.exists()


def test_a_signal_to_all_processes_stops_as_one_to_the_grid_does(folder):
    """As `timeout` sends it: not only the grid gets it, but what cells are forked from."""
    command = [sys.executable, "-m", "torchlace.cli", "reproduce", "mine.yaml", "--seeds", "1"]
    told = folder / "told"
    with told.open("w") as file:
        grid = subprocess.Popen(
            [*command, "--max-epochs", "400"],
            cwd=folder,
            env={**os.environ, **QUIET},
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    try:
        wait_for(lambda: "starts" in told.read_text())
        os.killpg(grid.pid, signal.SIGTERM)
        assert grid.wait(PATIENCE) == 130
    finally:
        grid.kill()
    assert "stopping: 1 run finishes its epoch" in told.read_text()
    assert told.read_text().endswith("stopped; the same command goes on from there\n")


def test_a_failed_run_is_reported_at_the_end_and_left_alone(folder):
    command = ("reproduce", "mine.yaml", "--seeds", "1", "--methods", "softmax")
    name = torchlace(*command, "--dry-run", folder=folder).out.splitlines()[0]
    run = folder / "runs" / "reproduce" / name
    run.mkdir(parents=True)
    (run / "failed.txt").write_text("RunError: the training loss became nan\nmore\n")
    done = torchlace(*command, folder=folder)
    assert done.code == 1
    assert done.err == (
        f"failed: {name}: RunError: the training loss became nan\n"
        "1 run failed; --retry-failed starts again what failed\n"
    )
    assert f"{name} (failed)" in torchlace(*command, "--format", "csv", folder=folder).out
    status = torchlace(*command, "--status", folder=folder)
    assert status.out == (
        f"mine: 1 run: 1 failed\n  {name}: failed: RunError: the training loss became nan\n"
    )
    assert torchlace(*command, "--dry-run", folder=folder).out.startswith("mine: 1 run: 1 failed")
    again = torchlace(*command, "--dry-run", "--retry-failed", folder=folder)
    assert again.out.splitlines()[0] == name


def test_compiled_is_no_other_run(folder):
    command = ("reproduce", "mine.yaml", "--seeds", "1", "--methods", "softmax")
    foretold = torchlace(*command, "--dry-run", folder=folder)
    assert torchlace(*command, "--compile", "--dry-run", folder=folder).out == foretold.out
    # Where nothing can be compiled, it shows that it was tried.
    nowhere = {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    failed = forked(*command, "--compile", folder=folder, environment=nowhere)
    assert failed.code == 1
    assert "RunError: small-cnn can't be compiled here" in failed.err
    again = forked(*command, "--retry-failed", folder=folder, environment=nowhere)
    assert again.code == 0, again
    assert [*finished(folder)] == foretold.out.splitlines()[:1]
    # A line says how its run computed, however it is asked for.
    shown = torchlace(*command, "--compile", "--show", "--format", "jsonl", folder=folder)
    assert json.loads(shown.out)["config"]["compile"] is False


def test_the_committed_results_are_shown_in_every_format(folder):
    command = ("reproduce", "table1", "--results", RESULTS, "--datasets", "cifar10")
    texts = {
        form: torchlace(*command, "--format", form, folder=folder)
        for form in ("terminal", "markdown", "latex", "csv", "html", "jsonl")
    }
    assert all((done.code, done.err) == (0, "") for done in texts.values())
    for form in ("terminal", "markdown", "latex", "csv", "html"):
        assert "88.69" in texts[form].out
    assert "jsonl:" in texts["markdown"].out
    assert r"\toprule" in texts["latex"].out
    assert texts["html"].out.startswith("<section")
    lines = [json.loads(line) for line in texts["jsonl"].out.splitlines()]
    assert {line["dataset"] for line in lines} == {"cifar10"}
    assert not (folder / "runs").exists()


def test_the_list_names_every_experiment(folder):
    done = torchlace("reproduce", "--list", folder=folder)
    assert done.code == 0
    names = ["table1", "table2", "table3", "table4", "figure2", "figure3", "cost", "controls"]
    for name in (*names, "settings", "quick"):
        assert f"│ {name} " in done.out


def test_a_dry_run_starts_nothing(folder):
    done = torchlace(
        "reproduce", "table3", "--seeds", "1", "--methods", "lace", "--dry-run", folder=folder
    )
    names = done.out.splitlines()
    assert names[0].startswith("cifar10-resnet50-lace-native-batch_size-128-")
    assert names[-1] == "table3: 5 runs: 5 missing"
    assert len(names) == 6
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name an experiment; torchlace reproduce --list shows them"),
        (("tabel1",), "unknown experiment 'tabel1': did you mean 'table1'"),
        (("none.yaml",), "there is no file none.yaml"),
        (("table1", "--methods", "arcfac"), "unknown method of table1 'arcfac': did you mean 'arc"),
        (("table1", "--datasets", "cifar"), "unknown data set of table1 'cifar': did you mean"),
        (("table1", "--format", "tex"), "unknown format 'tex': did you mean 'latex'"),
        (("table1", "-o", "a.pdf"), "a.pdf names no format: end it in .md, .tex, .csv, .html, .js"),
        (("table1", "--protocol", "papr"), "unknown protocol 'papr': did you mean 'paper'"),
        (("table1", "--engine", "rya", "--root", "."), "unknown engine 'rya': did you mean 'ray'"),
        (("table1", "--results", "nowhere"), "there are no results in nowhere"),
        (
            ("mine.yaml", "--missing"),
            "--missing runs what lines of results lack: name them by --res",
        ),
        (("mine.yaml", "--format", "csv", "-o", "a.png"), "leave out --format csv, or name a text"),
        (("mine.yaml", "-o", "."), ". is a folder: name a file in it, such as table.md"),
        (("mine.yaml", "-o", "mine.yaml/a.md"), "can't be written: mine.yaml is a file, not a"),
        (("mine.yaml", "-o", "mine.yaml/b/a.png"), "can't be written: mine.yaml is a file, not"),
        (("table1", "--root", "."), "torchlace data fetch cifar10"),
        (("figure2", "--results", TABLE1, "-o", "a.png"), "there is no embedding of figure2 to"),
        (("cost", "--results", TABLE1, "-o", "a.png"), "there is no finished run of cost to draw"),
    ],
)
def test_a_wrong_command_is_one_line(arguments, message, folder):
    done = torchlace("reproduce", *arguments, folder=folder)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (folder / "runs").exists()


def test_wrong_grids_of_ones_own_are_one_line(folder):
    for old, new, message in (
        ("head: lace}", "head: lacy}", "did you mean 'lace'"),
        ("data: digits", "data: digitss", "did you mean 'digits'"),
        ("seeds: 2", "seads: 2", "unknown key in mine.yaml 'seads': did you mean 'seeds'"),
        ("head: lace}", "backbone: resnt18}", "'resnt18': did you mean 'resnet18'"),
        ("label: Accuracy", "score: test_acuracy", "did you mean 'test_accuracy'"),
        ("  lace: {", "  softmax: {", "mine.yaml has the key 'softmax' twice, in lines 9 and 10"),
        ("head: lace}", "batch_size: -3}", "mine (lace, accuracy): batch_size must be at least 1"),
    ):
        (folder / "mine.yaml").write_text(GRID.replace(old, new))
        for option in ((), ("--dry-run",)):
            done = torchlace("reproduce", "mine.yaml", *option, folder=folder)
            assert (done.code, done.err.count("\n")) == (1, 1)
            assert message in done.err
            assert not os.path.exists(folder / "runs")


def test_a_selection_that_leaves_nothing_is_one_line(folder):
    grid = GRID.replace("head: lace}", "data: svhn}")
    (folder / "mine.yaml").write_text(grid)
    command = ("reproduce", "mine.yaml", "--datasets", "svhn", "--methods", "softmax", "--show")
    done = torchlace(*command, folder=folder)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: no run of mine has data set svhn and method softmax: ")


def test_the_result_of_other_data_is_not_shown_as_ones_own(folder):
    grid = GRID.replace("data: digits", "data: pack.npz, backbone: small-cnn")
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "mine.yaml").write_text(grid)
        pack = as_npz(folder / name)
    arrays = dict(np.load(pack))
    np.savez(pack, **{**arrays, "x_train": 255 - arrays["x_train"]})
    command = ("reproduce", "mine.yaml", "--seeds", "1", "--methods", "lace", "--max-epochs", "1")
    there = ("--runs", folder / "runs")
    first = torchlace(*command, *there, folder=folder / "one")
    assert first.code == 0, first
    for option in ((), ("--show",), ("--status",), ("--dry-run",)):
        other = torchlace(*command, *there, *option, folder=folder / "two")
        assert (other.code, other.out) == (1, "")
        assert f"was trained on {folder}/one/pack.npz, and this grid means {pack}: " in other.err
        assert "another folder by --runs" in other.err
    own = torchlace(*command, folder=folder / "two")
    assert own.code == 0, own

    again = torchlace(*command, *there, folder=folder / "one")
    assert (again.code, again.err) == (0, "")
    shutil.copy(pack, folder / "one")
    replaced = torchlace(*command, *there, folder=folder / "one")
    assert (replaced.code, replaced.out) == (1, "")
    assert f"was trained on other images than {folder}/one/pack.npz holds: " in replaced.err
    lines = torchlace(*command, "--format", "jsonl", "-o", "a.jsonl", folder=folder / "two")
    assert lines.code == 0, lines
    shown = torchlace(*command, *there, "--results", "../two/a.jsonl", folder=folder / "one")
    assert (shown.code, shown.err) == (0, "")


def test_a_run_at_work_is_not_said_to_be_cut(folder):
    command = ("reproduce", "mine.yaml", "--seeds", "1", "--methods", "lace")
    name = torchlace(*command, "--dry-run", folder=folder).out.splitlines()[0]
    lock = Lock(folder / "runs" / "reproduce" / name, LOCK)
    assert lock.acquire()
    lines = torchlace(*command, "--show", "--format", "jsonl", folder=folder)
    shown = torchlace(*command, "--show", "--format", "markdown", folder=folder)
    status = torchlace(*command, "--status", folder=folder)
    lock.release()
    assert (lines.code, lines.out, lines.err) == (0, "", "not in these lines: 1 run at work\n")
    assert "1 run at work: not counted yet." in shown.out
    assert "failed or cut" not in shown.out
    assert "1 run: 1 running" in status.out


def test_a_bad_image_is_named_with_what_to_do(folder):
    write(folder / "pictures")
    bad = folder / "pictures" / "digit 0" / "bad.png"
    bad.write_bytes(b"none")
    grid = GRID.replace("data: digits", "data: pictures, backbone: small-cnn")
    (folder / "mine.yaml").write_text(grid)
    command = ("reproduce", "mine.yaml", "--seeds", "1", "--methods", "lace")
    done = torchlace(*command, folder=folder)
    status = torchlace(*command, "--status", folder=folder)
    assert done.code == 1
    for line in (*done.err.splitlines()[1:3], status.out.splitlines()[1]):
        assert "failed: " in line
        assert "bad.png" in line
        assert "skip_bad: true" in line
    grid = grid.replace("data: pictures", "data: pictures, skip_bad: true")
    (folder / "mine.yaml").write_text(grid)
    assert torchlace(*command, folder=folder).code == 0


def test_links_of_a_page_lead_from_where_it_lies(folder):
    command = ("reproduce", "table1", "--results", "some", "--datasets", "cifar10")
    shutil.copytree(RESULTS, folder / "some")
    torchlace(*command, "-o", "pages/of mine/table.html", folder=folder)
    text = (folder / "pages" / "of mine" / "table.html").read_text()
    links = {unquote(link) for link in re.findall('href="(.*?)"', text)}
    assert links
    assert all((folder / "pages" / "of mine" / link).is_file() for link in links)
