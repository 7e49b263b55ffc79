"""Runs by the folders they lie in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from torchlace.runs.files import CONFIG

# Deeper ones are rather those of something else.
_DEEPEST = 4


def find_runs(paths: Iterable[Path | str]) -> list[Path]:
    """Run directories, with every folder of runs replaced by the runs in it, sorted by name.

    Runs are found down to four levels below a folder; hidden folders and those inside of runs are
    not looked into. A run that is given twice, or reached by links too, counts once. What is
    neither stays as it is, so that whoever opens it says what is wrong with it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for name in ("b", "a"):
        ...         run = Path(folder, name)
        ...         run.mkdir()
        ...         _ = (run / CONFIG).write_text("")
        ...     [run.name for run in find_runs([folder])]
        ['a', 'b']
    """
    found: dict[str, Path] = {}
    for path in map(Path, paths):
        for run in _runs(path) or [path]:
            found.setdefault(os.path.realpath(run), run)
    return list(found.values())


def _runs(top: Path) -> list[Path]:
    found: dict[str, Path] = {}
    entered: dict[str, int] = {}
    folders: list[tuple[Path, int]] = [(top, 0)]
    links: list[tuple[Path, int]] = []
    while folders or links:
        # Links last, so that a run goes by the name of where it lies.
        path, depth = (folders or links).pop()
        place = os.path.realpath(path)
        if os.path.exists(path / CONFIG):
            found.setdefault(place, path)
        elif depth < entered.get(place, _DEEPEST):
            entered[place] = depth
            for sub in _subfolders(path):
                (links if sub.is_symlink() else folders).append((sub, depth + 1))
    return sorted(found.values())


def _subfolders(path: Path) -> list[Path]:
    """Those that are not hidden, the last name first."""
    try:
        with os.scandir(path) as entries:
            found = [path / each.name for each in entries if each.name[0] != "."]
    except OSError:  # no folder, or not for us to read
        return []
    # Unlike an entry's own is_dir, this says no of a link to itself rather than raise.
    return sorted(filter(os.path.isdir, found), reverse=True)
