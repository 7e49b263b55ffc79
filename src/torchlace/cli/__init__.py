"""The command line: one command per verb; each parses, calls one function and prints."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from types import FrameType
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup

    from torchlace._text import shown
    from torchlace.cli import data, detect, predict, reproduce, runs, train
    from torchlace.cli.common import (
        Command,
        importing,
        prepare_output,
        say,
        say_lines,
        silence_output,
    )
except ImportError as error:
    raise SystemExit("error: the command line needs pip install 'torchlace[train]'") from error
except KeyboardInterrupt:
    raise SystemExit(130) from None

STOPPED = 130


class _App(typer.Typer):
    def __call__(self, *args: Any, **options: Any) -> Any:
        leave_imports_on_interrupt()
        prepare_output()
        try:
            try:
                return super().__call__(*args, **options)
            finally:
                sys.stdout.flush()
        except KeyboardInterrupt:
            raise SystemExit(STOPPED) from None
        except Exception as error:
            # Of what commands print, to a disk that is full.
            if isinstance(error, OSError) and error.filename is None:
                say(f"error: the output could not be written: {error.strerror}", err=True)
                silence_output()
            else:
                say_lines(traceback.format_exc(), err=True)
            raise SystemExit(1) from None


# Of typer's own copy of click, or of click.
_UsageError: Any = typer.BadParameter.__base__


class _Group(TyperGroup):
    """Commands whose usage errors are printed like all else; arguments may be names of files."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            error.message = shown(error.message)
            raise


app = _App(
    name="torchlace",
    cls=_Group,
    help="Train and use classifiers with LACE and its relatives.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_COMMANDS: dict[str, Any] = {
    "train": train.train,
    "evaluate": runs.evaluate,
    "compare": runs.compare,
    "predict": predict.predict,
    "report": runs.report,
    "export": runs.export,
    "detect": detect.detect,
    "heads": train.heads,
    "config": train.config,
    "reproduce": reproduce.reproduce,
}
for name, command in _COMMANDS.items():
    app.command(name, cls=Command)(command if name == "detect" else importing(command))
app.add_typer(data.app, name="data")


def _version(asked: bool) -> None:
    if asked:
        import torchlace

        say(torchlace.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train and use classifiers with LACE and its relatives."""


def leave_imports_on_interrupt() -> None:
    """Let Ctrl-C end the process at once where it is importing, and interrupt it elsewhere.

    What is imported can't be trusted to pass an interruption on: torch goes on without a numpy that
    was cut short, and aborts where its own extension is. Nothing is under way then that could be
    left half-done.
    """
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(STOPPED)
        frame = frame.f_back
    raise KeyboardInterrupt
