"""``torchlace evaluate``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from torchlace.cli.common import load_run, plain_errors, print_table


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    root: Annotated[Path | None, typer.Option(help="Where packs of data lie.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Test a trained run on its test images."""
    with plain_errors():
        import torch

        from torchlace.data import load_data
        from torchlace.evaluation import class_accuracies, classification_scores

        found, model, facts, prepare = load_run(run, device)
        config = found.config()
        place = root or (Path(config.root) if config.root else None)
        data = load_data(config.data, place, size=config.image_size, skip_bad=config.skip_bad)
        if data.digest != facts["data_digest"]:
            typer.echo("note: the data differ from those the run was trained on", err=True)
        where = next(model.parameters()).device
        parts = []
        with torch.inference_mode():
            for indices in torch.arange(len(data.test)).split(512):
                parts.append(model(prepare(data.test.batch(indices).to(where))).cpu())
        logits, labels = torch.cat(parts), data.test.labels
        scores = classification_scores(logits, labels, float(model.head.temperature))
        classes = dict(zip(facts["class_names"], class_accuracies(logits, labels), strict=True))
    if as_json:
        typer.echo(json.dumps({"run": str(run), **scores, "classes": classes}))
        return
    rows = [[name.replace("_", " "), f"{value:.3f}"] for name, value in scores.items()]
    print_table(f"{run}: {len(labels):,} test images of {data.name}", ["", "value"], rows)
    rows = [[name, f"{value:.2f}"] for name, value in classes.items()]
    print_table("accuracy of each class", ["class", "%"], rows)
