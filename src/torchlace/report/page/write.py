"""Examine runs and write the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from torchlace._checks import check_choice, check_count
from torchlace.evaluation.embedding import Method
from torchlace.report.page.gather import Examine, Failed, gather
from torchlace.report.page.render import render, require_all
from torchlace.runs import find_runs

if TYPE_CHECKING:
    from torchlace.inspection import Watcher


@dataclass(frozen=True)
class Report:
    """A page that was written.

    Attributes:
        path: where it is.
        shown: names of the runs it shows.
        failed: runs that can't be shown, with the reason.
    """

    path: Path
    shown: list[str]
    failed: list[Failed]


def write_report(
    runs: Iterable[Path | str],
    path: Path | str = "report.html",
    *,
    samples: int = 5000,
    method: Method = "tsne",
    device: str = "auto",
    root: Path | None = None,
    watcher: Watcher | None = None,
) -> Report:
    """Write one self-contained page about finished runs.

    A run that is unfinished, broken or of another version is listed with the reason; the others are
    shown all the same.

    Args:
        runs: run directories, or folders that hold some.
        path: where the page goes; what was there is replaced once the page is whole.
        samples: test images on the spheres, the same for every run on the same data.
        method: ``"tsne"``, ``"pca"`` or ``"umap"``.
        device: where features are computed: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        root: where packs of data lie.
        watcher: told what is being done.
    """
    from torchlace.inspection import Quiet
    from torchlace.runs import RunError, write_whole

    require_all()

    check_count("samples", samples, 5)
    check_choice("method", method, get_args(Method))
    paths, path = find_runs(runs), Path(path)
    if not paths:
        raise ValueError("a report needs at least one run")
    # Found out now rather than after minutes of work.
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path}/report.html")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    watcher = watcher or Quiet()
    collections, failed = gather(paths, Examine(samples, method, device, root), watcher)
    if not collections and path.exists():
        raise RunError(
            f"none of these runs can be shown, so {path} stays as it was: "
            + "; ".join(each.reason for each in failed)
        )
    watcher.message("writing the page")
    page = render(collections, failed, path.parent)
    # Paths of runs and data can hold bytes that are not text.
    content = page.encode(errors="backslashreplace")
    write_whole(path, lambda file: file.write(content))
    return Report(path, [run.name for each in collections for run in each.runs], failed)
