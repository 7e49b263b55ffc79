"""Recipes: settings of a training that belong together, by name."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from torchlace._text import setting
from torchlace._values import check_choice
from torchlace._yaml import read_yaml_text
from torchlace.runs.readers import read_yaml

NAMES = ("plain", "strong", "fast")


def read_recipe(name: str) -> dict[str, Any]:
    """The settings of a recipe: one of the package, or a YAML file of one's own.

    Example:
        >>> read_recipe("strong")["optimizer"]
        'muon'
    """
    if name.endswith((".yaml", ".yml")):
        return read_yaml(Path(name))[0]
    check_choice("recipe", name, NAMES)
    text = (files(__name__) / f"{name}.yaml").read_text("utf-8")
    found: dict[str, Any] = read_yaml_text(text, f"the recipe {name}")
    return found


def with_recipe(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a recipe, where those that are given beside it win.

    Another optimiser than the recipe's needs a learning rate of its own: one is refused without.
    A recipe that goes to the end of its epochs does so with other numbers of epochs too.

    Example:
        >>> with_recipe("fast", {"epochs": 1})["epochs"]
        1
    """
    recipe = read_recipe(name)
    used = recipe.get("optimizer", given.get("optimizer"))
    if given.get("optimizer", used) != used and "lr" in recipe and "lr" not in given:
        raise ValueError(
            f"the learning rate of the recipe {name}, {recipe['lr']:g}, is for {used}: give "
            f"{setting('lr')} with {setting('optimizer', given['optimizer'])}, and perhaps "
            f"{setting('weight_decay')}"
        )
    if "epochs" in given and recipe.get("patience", 0) >= recipe.get("epochs", 1):
        recipe["patience"] = max(recipe["patience"], given["epochs"])
    return {**recipe, **given}
