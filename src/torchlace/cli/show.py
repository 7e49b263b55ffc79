"""``torchlace heads`` and ``torchlace config``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from torchlace.cli.common import plain_errors, print_table, say_lines
from torchlace.runs.files import CONFIG


def heads() -> None:
    """List the heads and their defaults."""
    from torchlace import heads as registry

    rows = []
    for name in registry.names():
        head = registry.create(name, 512, 10)
        text = registry.summary(name)
        rows.append([name, text, head.extra_repr().removeprefix("512, 10").lstrip(", ")])
    print_table("heads", ["name", "what it is", "defaults, for 512 features and 10 classes"], rows)


def config(
    file: Annotated[
        Path | None, typer.Argument(help="A YAML file or run directory to show in full.")
    ] = None,
) -> None:
    """Print all settings of a training as YAML, ready for train --config."""
    with plain_errors():
        import yaml

        from torchlace.runs import TrainConfig

        if file is not None and file.is_dir():
            file = file / CONFIG
        settings = TrainConfig.from_yaml(file) if file else TrainConfig()
        values = settings.as_dict()
        for each in dataclasses.fields(settings):
            say_lines(yaml.safe_dump({each.name: values[each.name]}).strip())
