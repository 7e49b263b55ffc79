"""``torchlace export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchlace.cli.common import plain_errors, say
from torchlace.runs.files import ONNX


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write.", show_default=f"RUN/{ONNX}"),
    ] = None,
) -> None:
    """Write a trained run as an ONNX file, checked by ONNX Runtime.

    It takes uint8 images of the run's size, (N, C, H, W), and gives scores and probabilities.
    """
    with plain_errors():
        path = out or run / ONNX
        if path.suffix != ".onnx":
            raise ValueError(f"--out must end in .onnx, got {path}")
        from torchlace.models import export_onnx
        from torchlace.runs import load_run

        loaded = load_run(run, "cpu")
        loaded.run.result()  # an unfinished run is not calibrated yet
        height, width = loaded.facts["size"]
        names, channels = loaded.facts["class_names"], loaded.facts["channels"]
        shape = (channels, height, width)
        difference = export_onnx(
            loaded.model, path, shape, prepare=loaded.prepare, class_names=names
        )
    say(
        f"wrote {path}: uint8 images, (N, {channels}, {height}, {width}), to scores and "
        f"probabilities, (N, {len(names)}); these differ from the run's by {difference:.1g} at most"
    )
