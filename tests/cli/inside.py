"""The command line in the process of the test: all but its signals, imports and real streams."""

import atexit
import contextlib
import functools
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from training.processes import QUIET, Done

from torchlace.cli import app


def torchlace(*arguments, folder, environment=None, patch=None):
    """`torchlace ARGUMENTS` in a folder, as a process would run it; nothing of it stays behind."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    arguments = list(map(str, arguments))
    with contextlib.ExitStack() as stack:
        stack.enter_context(_kept_state())
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, {**QUIET, **(environment or {})}))
        stack.enter_context(mock.patch.object(sys, "argv", ["torchlace", *arguments]))
        stack.enter_context(mock.patch.object(torch.cuda, "is_available", return_value=False))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        if patch is not None:
            patch()
        try:
            app(arguments, prog_name="torchlace")
            code = 0
        except SystemExit as end:
            code = end.code or 0
    said = (each.buffer.getvalue().decode(errors="surrogateescape") for each in (out, err))
    return Done(code, *said)


@contextlib.contextmanager
def _kept_state():
    """What a command sets for its whole process, as it was before."""
    drawn = torch.get_rng_state(), np.random.get_state(), random.getstate()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with warnings.catch_warnings():
        warnings.resetwarnings()
        try:
            yield
        finally:
            torch.set_rng_state(drawn[0])
            np.random.set_state(drawn[1])
            random.setstate(drawn[2])
            for number, handler in handlers.items():
                signal.signal(number, handler)


def trained(folder, *arguments):
    """A copy of the run on the digits that these arguments of `train` make, trained once."""
    path = Path(folder) / "run"
    shutil.copytree(_trained(arguments) / "run", path)
    return path


@functools.cache
def _trained(arguments):
    folder = Path(tempfile.mkdtemp(prefix="torchlace-cli-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = torchlace("train", *arguments, "--run", "run", "--quiet", folder=folder)
    assert done.code == 0, done.err
    return folder
