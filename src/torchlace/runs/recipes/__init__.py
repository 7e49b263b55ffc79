"""Recipes: settings of a training that belong together, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from torchlace._values import check_choice
from torchlace._yaml import read_yaml_text
from torchlace.runs.readers import read_yaml

NAMES = ("plain", "strong", "fast")


def read_recipe(name: str) -> dict[str, Any]:
    """The settings of a recipe: one of the package, or a YAML file of one's own.

    Example:
        >>> read_recipe("strong")["optimizer"]
        'sgd'
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name))[0]
    check_choice("recipe", name, NAMES)
    text = (files(__name__) / f"{name}.yaml").read_text("utf-8")
    found: dict[str, Any] = read_yaml_text(text, f"the recipe {name}")
    return found
