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
        typer.Option("--out", "-o", help="ONNX file to write.", show_default=f"RUN/{ONNX}"),
    ] = None,
    hub: Annotated[
        Path | None,
        typer.Option(help="Write a folder for the Hugging Face Hub instead of an ONNX file."),
    ] = None,
) -> None:
    """Write a trained run as an ONNX file, checked by ONNX Runtime, or for the Hugging Face Hub.

    The ONNX file takes uint8 images of the run's size, (N, C, H, W), and gives scores and
    probabilities. The folder holds weights, settings and a model card with the run's figures.
    """
    with plain_errors():
        if hub is not None:
            if out is not None:
                raise ValueError("--out names an ONNX file and --hub a folder: give one of them")
            from torchlace.hub import save_pretrained

            save_pretrained(run, hub)
            say(f"wrote {hub}: hf upload NAME/{hub.resolve().name} {hub} brings it to the Hub")
            return
        _export_onnx(run, out or run / ONNX)


def _export_onnx(run: Path, path: Path) -> None:
    if path.suffix != ".onnx":
        raise ValueError(f"--out must end in .onnx, got {path}")
    from torchlace.models import export_onnx
    from torchlace.runs import load_run

    loaded = load_run(run, "cpu")
    loaded.run.result()  # an unfinished run is not calibrated yet
    height, width = loaded.facts["size"]
    names, channels = loaded.facts["class_names"], loaded.facts["channels"]
    shape = (channels, height, width)
    difference = export_onnx(loaded.model, path, shape, prepare=loaded.prepare, class_names=names)
    say(
        f"wrote {path}: uint8 images, (N, {channels}, {height}, {width}), to scores and "
        f"probabilities, (N, {len(names)}); these differ from the run's by {difference:.1g} at most"
    )
