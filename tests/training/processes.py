"""The command line in processes of its own.

Most of a command's time is the import of torch and Lightning, so processes are forked from one
that has imported them; `fresh` starts a whole interpreter instead.
"""

import contextlib
import csv
import json
import multiprocessing
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

QUIET = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
LOADED = ["torch", "lightning.fabric", "sklearn.datasets", "torchvision", "torch.utils.tensorboard"]
PATIENCE = 120


@dataclass
class Done:
    code: int
    out: str
    err: str

    def json(self):
        return json.loads(self.out)

    @property
    def told(self):
        """What it said beside its output, but for what a training begins with."""
        return re.sub(r"^training with\n(  .*\n)+", "", self.err, flags=re.MULTILINE)


class Command:
    """`torchlace ARGUMENTS` in a forked process."""

    def __init__(self, *arguments, folder, before_all_else=None, environment=None, patch=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in self.folder.glob("command*.out"))
        self.out, self.err = (self.folder / f"command{number}.{end}" for end in ("out", "err"))
        for path in (self.out, self.err):
            path.touch()
        places = (self.folder, self.out, self.err)
        self.process = _context().Process(
            target=_be_command,
            args=(list(map(str, arguments)), places, before_all_else, environment or {}, patch),
        )
        self.process.start()

    def send(self, number):
        os.kill(self.process.pid, number)

    def epochs(self):
        text = self.err.read_text() if self.err.exists() else ""
        return text.count("\nepoch ") + text.startswith("epoch ")

    def wait_for_epochs(self, count):
        limit = time.monotonic() + PATIENCE
        while self.epochs() < count and self.process.is_alive():
            assert time.monotonic() < limit, f"no {count} epochs: {self.err.read_text()}"
            time.sleep(0.01)

    def done(self):
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            raise AssertionError(f"still running: {self.err.read_text()}")
        return Done(self.process.exitcode, self.out.read_text(), self.err.read_text())


def torchlace(*arguments, folder, **options):
    return Command(*arguments, folder=folder, **options).done()


def ranks(*arguments, folders, patch=None):
    """The command in one process for each folder, which meet as those of a launcher do."""
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
    arguments = (*arguments, "--device", "cpu", "--devices", len(folders))
    started = [
        Command(
            *arguments,
            folder=folder,
            environment={**environment, "LOCAL_RANK": str(rank)},
            patch=patch,
        )
        for rank, folder in enumerate(folders)
    ]
    return [each.done() for each in started]


def fresh(*arguments, folder, command=("-m", "torchlace.cli"), **environment):
    done = subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, **QUIET, **environment},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def watched(*arguments, folder, columns=200):
    """The command with its errors on a terminal: exit code, output, what the terminal got."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "torchlace.cli", *arguments],
        cwd=folder,
        env={**os.environ, **QUIET, "TERM": "xterm", "COLUMNS": str(columns)},
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal closes with the process
        while part := os.read(master, 4096):
            seen += part
    out, _ = process.communicate()
    os.close(master)
    return process.returncode, out, seen


def machines(folders, *arguments):
    """The command on several machines, each with a folder: launchers that meet at an address."""
    port = _free_port()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(folders))]
    launcher += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    started = []
    for rank, folder in enumerate(folders):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["--node-rank", str(rank), "-m", "--", "torchlace.cli", *map(str, arguments)]
        started.append(
            subprocess.Popen(
                [*launcher, *command],
                cwd=folder,
                env={**os.environ, **QUIET},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        told = [machine.communicate(timeout=2 * PATIENCE) for machine in started]
    finally:
        for machine in started:
            machine.kill()
    return [Done(each.returncode, *said) for each, said in zip(started, told, strict=True)]


def metrics(run):
    """What metrics.csv says, but for the times and the digest that covers them."""
    with (Path(run) / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [
        {
            name: value
            for name, value in row.items()
            if name not in ("seconds", "images_per_second", "digest")
        }
        for row in rows
    ]


def outcome(run):
    """All that a run ends with, but for the times."""
    result = json.loads((Path(run) / "result.json").read_text())
    del result["seconds"], result["digest"]
    weights = (Path(run) / "best.safetensors").read_bytes()
    return {"metrics": metrics(run), "result": result, "weights": weights}


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    before = dict(os.environ)
    os.environ.update(QUIET)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return context


def _be_command(arguments, places, before_all_else, environment, patch):
    folder, out, err = places
    os.chdir(folder)
    os.environ.update(environment)
    if before_all_else is not None:
        _prefer(before_all_else)
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from torchlace.cli import app

    if patch is not None:
        patch()
    sys.argv = ["torchlace", *arguments]
    with contextlib.suppress(BrokenPipeError):
        app(arguments, prog_name="torchlace")


def _prefer(folder):
    """Import the packages of this folder, even those that were imported already."""
    sys.path.insert(0, str(folder))
    for package in folder.iterdir():
        for name in list(sys.modules):
            if package.name in name.split("."):
                del sys.modules[name]
