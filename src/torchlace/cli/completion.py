"""Values that the shell completes, as plain words: importing those who know them takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

HEADS = (
    *("adacos", "amc", "arcface", "center", "cosface", "lace", "lace-learned", "lace-published"),
    *("normface", "softmax", "sphereface"),
)
DATA = ("digits", "fashion_mnist", "cifar10", "svhn", "cifar100", "cifar100-coarse")
BACKBONES = (
    *("small-cnn", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121"),
)


def among(*words: str) -> Callable[[str], list[str]]:
    """Completes one of these words.

    Example:
        >>> among("adam", "adamw", "sgd")("ad")
        ['adam', 'adamw']
    """

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def experiments(incomplete: str) -> list[str]:
    """Completes one of the experiments that come with the library.

    Example:
        >>> experiments("figure")
        ['figure2', 'figure3']
    """
    grids = Path(__file__).parents[1] / "experiments" / "grids"
    return among(*sorted(path.stem for path in grids.glob("*.yaml")))(incomplete)
