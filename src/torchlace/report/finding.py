"""Runs by the folders they lie in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def find_runs(paths: Iterable[Path | str]) -> list[Path]:
    """Run directories, with every folder of runs replaced by the runs in it, sorted by name.

    What is neither stays as it is, so that whoever opens it says what is wrong with it.

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
    return [run for path in paths for run in _runs(Path(path))]


def _runs(path: Path) -> list[Path]:
    if (path / "config.yaml").exists():
        return [path]
    return sorted(each.parent for each in path.glob("*/config.yaml")) or [path]
