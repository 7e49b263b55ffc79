"""Runs by the folders they lie in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

# Deeper ones are rather those of something else, and links may lead in a circle.
_DEEPEST = 4


def find_runs(paths: Iterable[Path | str]) -> list[Path]:
    """Run directories, with every folder of runs replaced by the runs in it, sorted by name.

    Runs are found down to four levels below a folder; hidden folders and those inside of runs are
    not looked into. What is neither stays as it is, so that whoever opens it says what is wrong
    with it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b", "a"):
        ...         run = Path(folder, name)
        ...         run.mkdir()
        ...         _ = (run / "config.yaml").write_text("")
        ...     [run.name for run in find_runs([folder])]
        ['a', 'b']
    """
    return [run for path in map(Path, paths) for run in _runs(path, 0) or [path]]


def _runs(path: Path, depth: int) -> list[Path]:
    if (path / "config.yaml").exists():
        return [path]
    if depth == _DEEPEST:
        return []
    try:
        with os.scandir(path) as entries:
            folders = [each.name for each in entries if each.is_dir() and each.name[0] != "."]
    except OSError:  # no folder, or not for us to read
        return []
    return [run for name in sorted(folders) for run in _runs(path / name, depth + 1)]
