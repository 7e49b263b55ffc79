"""How many faults that are put into the core its tests find.

    python tests/mutants.py results.jsonl --count 100 --seed 0

A mutant is the source with one of the changes of tests/changes.py. The mutants of `functional`,
`backgrounds` and `heads` are drawn by the seed. Each is run in a copy against the examples of its
module and the tests of its layer until one fails: those of the same name first, then quick ones.
Every result becomes a line of the file, and the same command goes on where it was stopped.

`--tests FOLDER` takes the tests of another checkout. `--living earlier.jsonl` runs only the mutants
that no test killed there. `--against earlier.jsonl` names those that were killed there and live
here, and exits with 1 if there are any.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from changes import LAYERS, Mutant, draw

ROOT = Path(__file__).resolve().parents[1]
# Imported once and forked for every mutant.
LIBRARIES = ("hypothesis.strategies", "scipy.stats", "sklearn.covariance", "torch._dynamo")

# Where these stand, tests take long.
DEAR = ("torch.compile(", "spawn(", "@given(", "export(")

Job = Mutant | str  # a layer without a mutant
Outcome = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tests", type=Path, default=ROOT)
    parser.add_argument("--living", type=Path)
    parser.add_argument("--against", type=Path)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    results = read(args.results)
    with tempfile.TemporaryDirectory() as folder:
        copies = [Copy(Path(folder, str(n)), args.tests.resolve()) for n in range(args.jobs)]
        mutants = list(itertools.islice(draw(copies[0].tree / "src", args.seed), args.count))
        if args.living:
            earlier = read(args.living)
            mutants = [m for m in mutants if not earlier.get(str(m), {"killed": True})["killed"]]
        jobs = [*reversed(LAYERS), *mutants]
        for job, outcome in run([j for j in jobs if str(j) not in results], copies):
            if job in LAYERS and outcome["killed"]:
                sys.exit(f"a test of {job} fails without a mutant: {outcome['by']}")
            line = {"name": str(job), "layer": getattr(job, "layer", job), **outcome}
            results[str(job)] = line
            with args.results.open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(f"{len(results):4}  {job}  {line['by'] or 'no failure'}", flush=True)
    show(results, list(map(str, mutants)))
    earlier = read(args.against) if args.against else {}
    lost = [m for m in map(str, mutants) if m in earlier and earlier[m]["killed"]]
    lost = [m for m in lost if not results[m]["killed"]]
    print(*(f"lost: {name}" for name in lost), sep="\n")
    sys.exit(bool(lost))


def read(path: Path) -> dict[str, Outcome]:
    """The lines of a file of results, by the name of the mutant or layer."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {line["name"]: line for line in map(json.loads, lines)}


def show(results: dict[str, Outcome], mutants: list[str]) -> None:
    """Print how many mutants of each layer were killed, and which live."""
    print("| tests | cases | CPU seconds | mutants | killed |")
    print("|---|---|---|---|---|")
    for layer in LAYERS:
        killed = [results[name]["killed"] for name in mutants if results[name]["layer"] == layer]
        cases, seconds = results[layer]["cases"], results[layer]["cpu"]
        print(f"| {layer} | {cases} | {seconds:.0f} | {len(killed)} | {sum(killed)} |")
    for name in mutants:
        if not results[name]["killed"]:
            print(f"lives: {name}")


def run(jobs: list[Job], copies: list["Copy"]) -> Iterator[tuple[Job, Outcome]]:
    """Each job with its outcome, as they end."""
    waiting = iter(jobs)
    try:
        while True:
            for copy in copies:
                if copy.job is not None and not copy.process.is_alive():
                    yield copy.job, copy.collect()
                if copy.job is None and (job := next(waiting, None)) is not None:
                    copy.start(job)
            if all(copy.job is None for copy in copies):
                return
            time.sleep(0.05)
    finally:
        for copy in copies:
            if copy.job is not None:
                copy.stop()


class Copy:
    """A copy of the source with the tests, in which one process at a time runs."""

    process: multiprocessing.process.BaseProcess

    def __init__(self, tree: Path, tests: Path) -> None:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
        shutil.copytree(tests / "tests", tree / "tests", ignore=ignored)
        shutil.copytree(ROOT / "docs", tree / "docs")  # examples of its pages are tested
        shutil.copy(ROOT / "pyproject.toml", tree)
        self.tree = tree
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        """Run all tests of a layer, or for a mutant one group after the other until one fails."""
        self.job = job
        if isinstance(job, Mutant):
            groups = self._groups(job)
            self.intact = (self.tree / "src" / job.file).read_bytes()
            self._write(job.of(self.intact))
        else:
            groups = [[f"src/torchlace/{job}", f"tests/{job}"]]
        (self.tree / "outcome.json").unlink(missing_ok=True)
        fork = multiprocessing.get_context("fork").Process
        self.process = fork(target=self._run, args=(groups,))
        self.process.start()

    def collect(self) -> Outcome:
        """What was found, once the process has ended."""
        self.stop()
        code, found = self.process.exitcode, self.tree / "outcome.json"
        if isinstance(self.job, Mutant):
            self._write(self.intact)
        self.job = None
        if found.exists():
            return json.loads(found.read_text())
        late = code in (-signal.SIGPROF, -signal.SIGALRM)
        return {"killed": True, "by": "time" if late else f"exit code {code}"}

    def stop(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # where it has no group of its own yet
        self.process.join()

    def _groups(self, mutant: Mutant) -> list[list[str]]:
        """The tests of the same name, those of the others that are quick, and the dear ones."""
        groups = [[f"src/{mutant.file}"], [], []]
        for path in sorted((self.tree / "tests" / mutant.layer).glob("test_*.py")):
            related = Path(mutant.file).stem in path.stem
            dear = any(word in path.read_text() for word in DEAR)
            groups[0 if related else 1 + dear].append(str(path.relative_to(self.tree)))
        return groups

    def _write(self, content: bytes) -> None:
        path = self.tree / "src" / self.job.file
        path.write_bytes(content)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):  # dated to the second only
            compiled.unlink()

    def _run(self, groups: list[list[str]]) -> None:
        os.setsid()
        os.chdir(self.tree)
        sys.path.insert(0, str(self.tree / "src"))
        os.environ["PYTHONPATH"] = sys.path[0]
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        watch = Watch()
        for group in filter(None, groups):
            code = pytest.main(["--hypothesis-seed=0", "-x", *group], plugins=[watch])
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                watch.failed = watch.failed or f"exit code {int(code)}"
                break
        Path("outcome.json").write_text(json.dumps(watch.outcome()))
        sys.stdout.flush()
        os._exit(0)


class Watch:
    """A plugin of pytest that counts, times and limits the tests, and names the first failure."""

    def __init__(self) -> None:
        self.failed, self.cases = "", 0
        for limit in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(limit, signal.SIG_DFL)  # ends the process, wherever it hangs
        self._limit()

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self._limit()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.cases += report.when == "call"
        if report.failed:
            self.failed = self.failed or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed = self.failed or f"import of {report.nodeid}"

    def outcome(self) -> Outcome:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return {
            "killed": bool(self.failed),
            "by": self.failed,
            "cases": self.cases,
            "cpu": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
        }

    def _limit(self) -> None:
        """A minute of computing, which a busy machine does not shorten, or 15 of waiting."""
        signal.setitimer(signal.ITIMER_PROF, 60)
        signal.alarm(900)


if __name__ == "__main__":
    main()
