"""The settings of a training run, each declared once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from torchlace._imports import require_imported
from torchlace._text import setting
from torchlace._values import check_choice, check_option, convert, option
from torchlace.runs.readers import read_yaml

# What may differ when a run is resumed: where and how it computes, not what.
EXECUTION = frozenset(
    {"root", "device", "devices", "nodes", "strategy", "precision", "graph", "compile"}
    | {"workers", "loggers", "imports"}
)
OPTIMIZERS = ("adam", "adamw", "sgd", "muon")
DATA, MODEL, LEARNING = "The data", "The network", "How it learns"
JUDGING, PLACE = "What it is judged by", "Where and how it computes"


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are the paper's where it has any.

    Each is declared once: the options of ``torchlace train`` are made from these fields.

    Example:
        >>> TrainConfig(data="cifar10", head="lace", seed=1).backbone_name
        'resnet18'
    """

    data: str = option("digits", "Data set, folder of class folders, CSV or .npz.", DATA)
    root: str | None = option(
        None, "Where packs of data lie.", DATA, shown="$TORCHLACE_DATA or ~/.cache/torchlace"
    )
    head: str = option("lace", "Name of the head, see torchlace heads.", MODEL)
    head_options: dict[str, Any] = option(dict, "Options of the head.", MODEL)  # noqa: RUF009
    backbone: str = option(
        "auto",
        "small-cnn, one of torchvision's, or timm/NAME.",
        MODEL,
        shown="auto: resnet18; small-cnn for digits, and for own images on a CPU",
    )
    stem: str = option(
        "auto",
        "small keeps the resolution of small images.",
        MODEL,
        choices=("auto", "small", "standard"),
        shown="auto: small for native images up to 64 px",
    )
    pretrained: bool = option(False, "Start from the library's weights.", MODEL)
    embedding: int | None = option(
        None, "Width of a linear layer with PReLU behind the backbone.", MODEL, most=10**9
    )
    background_norm: str | None = option(
        None,
        "A normalisation layer of the backbone that a BackgroundNorm takes the place of.",
        MODEL,
    )
    protocol: str = option(
        "native",
        "native: the data's own size; paper: 224 px.",
        DATA,
        choices=("native", "paper"),
    )
    image_size: int | None = option(
        None,
        "Side of the square that images, of packs too, are brought to.",
        DATA,
        most=10**4,
        shown="that of nine in ten; 224 where they differ or exceed 512; paper: 256",
    )
    mirror: bool | None = option(
        None, "Mirror half of the training images.", DATA, shown="all but known digits"
    )
    crop: str = option(
        "resized",
        "Training images: resized crops of 80 to 100 %, or shifts by up to an eighth.",
        LEARNING,
        choices=("resized", "shift"),
    )
    erase: float = option(
        0.0,
        "Side of a square erased in each training image, as a share of its sides.",
        LEARNING,
        low=0,
        high=1,
        closed=True,
    )
    mixup: float = option(
        0.0,
        "Share of the training images that mixup mixes with another.",
        LEARNING,
        low=0,
        high=1,
        closed=True,
    )
    cutmix: float = option(
        0.0,
        "Share of them that get a rectangle of another (CutMix).",
        LEARNING,
        low=0,
        high=1,
        closed=True,
    )
    optimizer: str = option("adam", f"{', '.join(OPTIMIZERS)}.", LEARNING, choices=OPTIMIZERS)
    lr: float = option(1e-3, "Learning rate.", LEARNING, low=0, most=1e37)
    weight_decay: float = option(
        0.0,
        "Weight decay of matrices and kernels; biases and norms have none.",
        LEARNING,
        low=0,
        closed=True,
        most=1e37,
    )
    schedule: str = option(
        "constant",
        "Of the learning rate: constant, cosine or one-cycle, over all epochs.",
        LEARNING,
        choices=("constant", "cosine", "one-cycle"),
    )
    epochs: int = option(
        300,
        "Epochs, at most.",
        LEARNING,
        low=1,
        most=10**9,
        shown="300: for own images 60, on a CPU what three minutes allow",
    )
    patience: int = option(
        10,
        "Stop after so many epochs without a better validation loss.",
        JUDGING,
        low=1,
        most=10**9,
    )
    batch_size: int = option(
        256,
        "Images in a step, over all devices together.",
        LEARNING,
        low=1,
        most=10**9,
        shown="256: fewer where own images are few",
    )
    validation: float = option(
        0.1, "Share of the training images held out.", JUDGING, low=0, high=0.5
    )
    images: int | None = option(
        None, "Train on so many of the others only, drawn by class.", DATA, low=2
    )
    clip: float | None = option(None, "Largest norm of the gradient.", LEARNING, low=0)
    label_smoothing: float = option(
        0.0, "Label smoothing of the loss.", LEARNING, low=0, high=1, closed=True
    )
    class_weights: str = option(
        "none",
        "balanced: classes weigh inversely to their frequency.",
        LEARNING,
        choices=("none", "balanced"),
    )
    weights: str = option(
        "best",
        "Weights to use: of the epoch of the best validation accuracy, or of the last one.",
        JUDGING,
        choices=("best", "last"),
    )
    ema: float | None = option(
        None,
        "Decay of an exponential average of the weights, which is then what is evaluated.",
        JUDGING,
        low=0,
        high=1,
    )
    norm_batches: int = option(
        0,
        "Batches that batch normalisation takes its statistics from, anew before each validation.",
        JUDGING,
        low=0,
        most=10**9,
        shown="0: running averages",
    )
    seed: int = option(
        0, "Seed of split, initialisation, order and augmentation.", LEARNING, low=0, most=10**13
    )
    skip_bad: bool = option(False, "Leave unreadable images out instead of stopping.", DATA)
    device: str = option(
        "auto", "cpu, cuda, mps or auto.", PLACE, choices=("auto", "cpu", "cuda", "mps")
    )
    devices: int = option(1, "Devices on each machine.", PLACE, low=1, most=10**4)
    nodes: int = option(1, "Machines.", PLACE, low=1, most=10**4)
    strategy: str = option(
        "auto",
        "auto, ddp, fsdp (the parameters spread over the devices) or another of Lightning Fabric.",
        PLACE,
    )
    precision: str = option(
        "auto",
        "32-true, bf16-mixed, 16-mixed or another of Lightning Fabric.",
        PLACE,
        shown="auto: bf16-mixed on CUDA",
    )
    graph: bool = option(True, "Replay the step as a CUDA graph where that is possible.", PLACE)
    compile: bool = option(
        False,
        "Compile the backbone: a minute at the start, a quarter faster then on a GPU.",
        PLACE,
    )
    workers: int = option(
        2, "Processes that decode images which don't fit in memory.", PLACE, low=0, most=10**4
    )
    loggers: tuple[str, ...] = option(
        (), "Beyond CSV and TensorBoard: wandb, mlflow.", PLACE, choices=("wandb", "mlflow")
    )
    imports: tuple[str, ...] = option(
        (), "Files of Python (.py) or modules that register heads, data sets and the like.", MODEL
    )

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            check_option(each, getattr(self, each.name))
        for name in ("device", "dtype"):
            if name in self.head_options:
                raise ValueError(
                    f"a head of a run takes no option {name}: {setting('device')} and "
                    f"{setting('precision')} say where and how all of the model computes"
                )

    @property
    def backbone_name(self) -> str:
        """Name of the backbone; auto becomes the one it stands for."""
        if self.backbone != "auto":
            return self.backbone
        return "small-cnn" if self.data == "digits" else "resnet18"

    @property
    def mixed_size(self) -> tuple[int, int] | None:
        """Height and width that image files of different sizes get; None for that of the most."""
        from torchlace.data.transforms import PAPER_RESIZE

        return (PAPER_RESIZE, PAPER_RESIZE) if self.protocol == "paper" else None

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain values, ready for YAML."""
        values = dataclasses.asdict(self)
        return {**values, "loggers": list(self.loggers), "imports": list(self.imports)}

    def placed(self) -> TrainConfig:
        """The same settings with absolute paths of data, so that they hold from any folder."""
        from torchlace.data import absolute_source

        root = None if self.root is None else str(Path(self.root).expanduser().absolute())
        return dataclasses.replace(self, data=absolute_source(self.data), root=root)

    def differences(self, other: TrainConfig) -> dict[str, tuple[Any, Any]]:
        """What makes ``other`` another experiment: settings and (own value, other's value)."""
        mine, theirs = self.placed().as_dict(), other.placed().as_dict()
        return {
            name: (value, theirs[name])
            for name, value in mine.items()
            if name not in EXECUTION and value != theirs[name]
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "configuration") -> TrainConfig:
        """Make settings from plain values; errors name those that are unknown or of a wrong type.

        Example:
            >>> TrainConfig.from_dict({"head": "arcface", "lr": 1}).lr
            1.0
        """
        hints = get_type_hints(cls)
        clean = {}
        for name, value in values.items():
            check_choice(f"setting in {source}", name, hints)
            clean[name] = convert(name, value, hints[name], source)
        return cls(**clean)

    @classmethod
    def from_yaml(cls, path: Path | str, **overrides: Any) -> TrainConfig:
        """Read settings from a YAML file, such as a run's config.yaml; ``overrides`` win.

        Of ``head_options`` those that are named win and the others stay, unless ``head`` is another
        one: then the file's say nothing about it. ``imports`` add to the file's; of a run's
        config.yaml, they must have been imported already (:func:`torchlace.import_code`).
        """
        values, facts = read_yaml(Path(path))
        here = require_imported(f"the run of {path}", facts.get("imports", {}))
        here += overrides.pop("imports", ())
        head = values.get("head", cls.head)
        if overrides.get("head", head) != head:
            values.pop("head_options", None)
        options, mine = values.get("head_options"), overrides.get("head_options")
        if isinstance(options, dict) and mine is not None:
            overrides = {**overrides, "head_options": {**options, **mine}}
        config = cls.from_dict({**values, **overrides}, str(path))
        return dataclasses.replace(config, imports=tuple(dict.fromkeys([*config.imports, *here])))
