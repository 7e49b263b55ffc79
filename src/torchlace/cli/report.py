"""``torchlace report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchlace.cli.common import plain_errors, say
from torchlace.cli.progress import reporting


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page to write.", dir_okay=False)
    ] = Path("report.html"),
    open_page: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    samples: Annotated[
        int, typer.Option(min=5, help="Test images on the spheres, at most.")
    ] = 5000,
    method: Annotated[str, typer.Option(help="Of the spheres: tsne, pca or umap")] = "tsne",
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
) -> None:
    """Write one page about runs: comparison, curves, features, mistakes, settings.

    A run that can't be shown is listed with the reason; if none can, no page is written.
    """
    with plain_errors():
        from torchlace.evaluation import check_method
        from torchlace.report import write_report
        from torchlace.runs import find_runs

        check_method(method, find_runs(runs))  # type: ignore[arg-type]  # checked there
        with reporting() as watcher:
            written = write_report(
                runs,
                output,
                samples=samples,
                method=method,  # type: ignore[arg-type]  # checked there
                device=device,
                root=root,
                reporter=watcher,
            )
    say(str(written.path))
    if open_page:
        typer.launch(written.path.resolve().as_uri())
