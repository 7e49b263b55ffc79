"""All that is needed to run a training again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from torchlace._checks import check_choice, check_count, check_number
from torchlace._choices import CHOICES
from torchlace._yaml import read_yaml_file
from torchlace.data import absolute_source
from torchlace.data.augment import PAPER_RESIZE
from torchlace.data.load import MIXED_SIZE

# What may differ when a run is resumed: where and how it computes, not what.
EXECUTION = frozenset(
    {"root", "device", "devices", "nodes", "strategy", "precision", "graph", "compile"}
    | {"workers", "loggers"}
)
# Beyond these, what computes with them overflows or never ends.
_MOST: dict[str, float] = {
    **dict.fromkeys(("epochs", "patience", "batch_size", "norm_batches", "embedding"), 10**9),
    **dict.fromkeys(("workers", "devices", "nodes"), 10**4),
    **dict.fromkeys(("lr", "weight_decay"), 1e37),
    "image_size": 10**4,
    "seed": 10**13,
}


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run; the defaults are the paper's where it has any.

    Example:
        >>> TrainConfig(data="cifar10", head="lace", seed=1).backbone_name
        'resnet18'
    """

    data: str = "digits"
    """Name of a data set, a folder of class folders, a CSV or an .npz."""
    root: str | None = None
    """Where packs of data lie."""
    head: str = "lace"
    """Name of the head."""
    head_options: dict[str, Any] = field(default_factory=dict)
    """Options of the head."""
    backbone: str = "auto"
    """Name of the backbone; auto: small-cnn for digits, resnet18 else."""
    stem: str = "auto"
    """small keeps the resolution of small images; auto: small for native images up to 64 px."""
    pretrained: bool = False
    """Start from the library's weights."""
    embedding: int | None = None
    """Width of a linear layer with PReLU behind the backbone."""
    background_norm: str | None = None
    """Name of a normalisation layer of the backbone that a BackgroundNorm takes the place of."""
    protocol: str = "native"
    """native: the data's own size; paper: 224 px."""
    image_size: int | None = None
    """Side of the square that images, of packs too, are brought to."""
    mirror: bool | None = None
    """Mirror half of the training images; by default all but digits, known by name."""
    optimizer: str = "adam"
    """adam, adamw or sgd."""
    lr: float = 1e-3
    """Learning rate."""
    weight_decay: float = 0.0
    """Weight decay."""
    schedule: str = "constant"
    """Of the learning rate: constant, cosine or one-cycle, over all epochs."""
    epochs: int = 300
    """At most so many."""
    patience: int = 10
    """Stop after so many epochs without a better validation loss."""
    batch_size: int = 256
    """Images in a step, over all devices together."""
    validation: float = 0.1
    """Share of the training images held out."""
    images: int | None = None
    """Train on so many of the others only, drawn by class; by default on all."""
    clip: float | None = None
    """Largest norm of the gradient."""
    label_smoothing: float = 0.0
    """Passed to the head's loss."""
    class_weights: str = "none"
    """balanced: classes weigh inversely to their frequency."""
    ema: float | None = None
    """Decay of an exponential average of the weights, which is then what is evaluated."""
    norm_batches: int = 0
    """Batches that batch normalisation takes its statistics from, anew before each validation; 0:
    the running averages."""
    seed: int = 0
    """Of split, initialisation, order and augmentation."""
    skip_bad: bool = False
    """Leave unreadable images out instead of stopping."""
    device: str = "auto"
    """cpu, cuda, mps or auto."""
    devices: int = 1
    """Devices on each machine."""
    nodes: int = 1
    """Machines."""
    strategy: str = "auto"
    """auto, ddp, fsdp (the parameters spread over the devices) or another of Lightning Fabric."""
    precision: str = "auto"
    """32-true, bf16-mixed, 16-mixed or another of Lightning Fabric; auto: bf16-mixed on CUDA."""
    graph: bool = True
    """Replay the step as a CUDA graph where that is possible."""
    compile: bool = False
    """Compile the backbone: a minute at the start, a quarter faster then on a GPU."""
    workers: int = 2
    """Processes that decode images which don't fit in memory."""
    loggers: tuple[str, ...] = ()
    """Beyond CSV and TensorBoard: wandb, mlflow."""

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        for name in ("epochs", "patience", "batch_size", "devices", "nodes"):
            check_count(name, getattr(self, name))
        check_count("workers", self.workers, 0)
        check_count("norm_batches", self.norm_batches, 0)
        check_count("seed", self.seed, 0)
        check_number("lr", self.lr, 0)
        check_number("weight_decay", self.weight_decay, 0, closed=True)
        check_number("validation", self.validation, 0, 0.5)
        check_number("label_smoothing", self.label_smoothing, 0, 1, closed=True)
        if self.images is not None:
            check_count("images", self.images, 2)
        if self.clip is not None:
            check_number("clip", self.clip, 0)
        if self.ema is not None:
            check_number("ema", self.ema, 0, 1)
        for logger in self.loggers:
            check_choice("logger", logger, ("wandb", "mlflow"))
        for name, most in _MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name} must be at most {most:,}, got {getattr(self, name)}")
        for name in ("device", "dtype"):
            if name in self.head_options:
                raise ValueError(
                    f"a head of a run takes no option {name}: --device and --precision say where "
                    "and how all of the model computes"
                )

    @property
    def backbone_name(self) -> str:
        """The backbone, with auto resolved."""
        if self.backbone != "auto":
            return self.backbone
        return "small-cnn" if self.data == "digits" else "resnet18"

    @property
    def mixed_size(self) -> tuple[int, int]:
        """What image files that differ in size are brought to: what the protocol crops from."""
        return (PAPER_RESIZE, PAPER_RESIZE) if self.protocol == "paper" else MIXED_SIZE

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for YAML."""
        values = dataclasses.asdict(self)
        return {**values, "loggers": list(self.loggers)}

    def placed(self) -> TrainConfig:
        """The same from any folder: the paths of data made absolute."""
        root = None if self.root is None else str(Path(self.root).expanduser().absolute())
        return dataclasses.replace(self, data=absolute_source(self.data), root=root)

    def differences(self, other: TrainConfig) -> dict[str, tuple[Any, Any]]:
        """What makes ``other`` a different experiment: (own value, other's value) by name."""
        mine, theirs = self.placed().as_dict(), other.placed().as_dict()
        return {
            name: (value, theirs[name])
            for name, value in mine.items()
            if name not in EXECUTION and value != theirs[name]
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str = "configuration") -> TrainConfig:
        """From plain values, with errors that name the unknown or mistyped ones.

        Example:
            >>> TrainConfig.from_dict({"head": "arcface", "lr": 1}).lr
            1.0
        """
        hints = get_type_hints(cls)
        clean = {}
        for name, value in values.items():
            check_choice(f"setting in {source}", name, hints)
            clean[name] = _coerce(name, value, hints[name], source)
        return cls(**clean)

    @classmethod
    def from_yaml(cls, path: Path | str, **overrides: Any) -> TrainConfig:
        """From a YAML file, such as a run's config.yaml; ``overrides`` win.

        Of ``head_options`` those that are named win and the others stay, unless ``head`` is another
        one: then the file's say nothing about it.
        """
        values = read_yaml(Path(path))
        head = values.get("head", cls.head)
        if overrides.get("head", head) != head:
            values.pop("head_options", None)
        options, mine = values.get("head_options"), overrides.get("head_options")
        if isinstance(options, dict) and mine is not None:
            overrides = {**overrides, "head_options": {**options, **mine}}
        return cls.from_dict({**values, **overrides}, str(path))


def read_yaml(path: Path) -> dict[str, Any]:
    """Settings of a YAML file; what a run adds under ``run:`` is left out."""
    try:
        values = read_yaml_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no configuration file {path}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold `name: value` lines, got {type(values).__name__}")
    values.pop("run", None)
    return values


def _coerce(name: str, value: Any, kind: Any, source: str) -> Any:
    text = str(kind)
    if value is None and "None" in text:
        return None
    if kind == tuple[str, ...]:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} in {source} must be a list, got {value!r}")
        return tuple(value)
    wanted: Any = next((t for t in (bool, dict, int, float, str) if t.__name__ in text), str)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is float and isinstance(value, str):
        # YAML reads 1e-3 as a string.
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TypeError(f"{name} in {source} must be {wanted.__name__}, got {value!r}")
    return value
