"""Networks from images to features: torchvision's and timm's by name, with a small-image stem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from torchlace._checks import check_choice, check_count
from torchlace._registry import Registry
from torchlace.backgrounds import BackgroundNorm

Stem = Literal["standard", "small"]


class SmallCNN(nn.Module):
    """Two convolutions for images of 8 to 28 pixels; the default backbone of the digits.

    Group normalisation instead of batch normalisation: what a sample gives does not depend on the
    batch around it, nor on how the batch is spread over processes.

    Example:
        >>> SmallCNN(1)(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
    """

    def __init__(self, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.num_features = width
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width // 2, 3, padding=1, bias=False),
            nn.GroupNorm(8, width // 2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width // 2, width, 3, padding=1, bias=False),
            nn.GroupNorm(8, width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * width, width),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features, (N, width)."""
        features: Tensor = self.layers(images)
        return features


_REGISTRY: Registry[Callable[[int], nn.Module]] = Registry("backbone", {"small-cnn": SmallCNN})


class Backbone(nn.Module):
    """A network without its classifier, and optionally an embedding (linear + PReLU) behind it.

    Attributes:
        num_features: width of the features.
    """

    def __init__(self, network: nn.Module, num_features: int, embedding: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.num_features = embedding or num_features
        self.embedding = (
            nn.Sequential(nn.Linear(num_features, embedding), nn.PReLU()) if embedding else None
        )

    def forward(self, images: Tensor) -> Tensor:
        """Features, (N, num_features)."""
        features: Tensor = self.network(images)
        return features if self.embedding is None else self.embedding(features)


def create_backbone(
    name: str,
    *,
    channels: int = 3,
    stem: Stem = "standard",
    pretrained: bool = False,
    embedding: int | None = None,
    background_norm: str | None = None,
) -> Backbone:
    """A backbone by name.

    Args:
        name: ``"small-cnn"``, any classification model of torchvision (``"resnet18"``, ...),
            ``"timm/NAME"`` for one of timm's, or one that was registered.
        channels: of the images.
        stem: ``"small"`` keeps the resolution of small images: a 3 × 3 convolution of stride one
            and no pooling where a 7 × 7 one of stride two and a pooling stand; for other families
            the first convolution gets stride one.
        pretrained: load the library's default weights.
        embedding: width of an additional linear layer with PReLU; none if omitted.
        background_norm: name of a normalisation layer of the network, such as ``"layer4.1.bn2"`` of
            resnet18, that a :class:`torchlace.BackgroundNorm` takes the place of.

    Example:
        >>> create_backbone("resnet18", stem="small", embedding=128).num_features
        128
    """
    check_backbone(name)
    check_choice("stem", stem, ("standard", "small"))
    if embedding is not None:
        check_count("embedding", embedding)
    if name in _REGISTRY:
        if pretrained:
            raise ValueError(f"{name} has no pretrained weights: leave pretrained off")
        network = _REGISTRY[name](channels)
        width = _width(network, name)
    elif name.startswith("timm/"):
        network, width = _from_timm(name.removeprefix("timm/"), channels, pretrained)
    else:
        network, width = _from_torchvision(name, pretrained)
        if channels != 3:
            _replace_first_convolution(network, lambda conv: _convolution(conv, channels=channels))
    if stem == "small" and name not in _REGISTRY:
        shrink_stem(network)
    if background_norm is not None:
        _whiten_at(network, background_norm)
    return Backbone(network, width, embedding)


def check_backbone(name: str) -> str:
    """Return ``name`` if :func:`create_backbone` knows it, or raise with the nearest ones.

    Example:
        >>> check_backbone("resnet18")
        'resnet18'
    """
    return name if name in _REGISTRY else check_choice("backbone", name, backbone_names(name))


def register(name: str, factory: Callable[[int], nn.Module] | None = None) -> Any:
    """Add a backbone of your own: ``factory(channels)`` gives a module from images to features.

    The module says how many features it gives in its attribute ``num_features``; where and how
    small images are treated is its own affair. Without a factory it is a decorator.

    Example:
        >>> class Flat(nn.Flatten):
        ...     num_features = 64
        >>> _ = register("flat", lambda channels: Flat())
        >>> create_backbone("flat")(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 64])
        >>> _REGISTRY.forget("flat")
    """
    return _REGISTRY.register(name, factory)


def backbone_names(like: str = "") -> list[str]:
    """Names of :func:`create_backbone`: those registered, torchvision's, and where asked timm's.

    Args:
        like: a name that is looked for: timm's are named only where it starts with ``timm/``.

    Example:
        >>> [name for name in backbone_names() if name.startswith("resnet1")]
        ['resnet101', 'resnet152', 'resnet18']
    """
    if like.startswith("timm/"):
        return [f"timm/{name}" for name in _timm().list_models()]
    return sorted({*_REGISTRY, *_torchvision_names()})


def shrink_stem(network: nn.Module) -> None:
    """Keep the resolution of small images: see ``stem`` of :func:`create_backbone`.

    Example:
        >>> import torchvision
        >>> network = torchvision.models.densenet121(num_classes=10)
        >>> shrink_stem(network)
        >>> network.features.conv0.stride, network.features.pool0
        ((1, 1), Identity())
    """
    first = next((m for m in network.modules() if isinstance(m, nn.Conv2d)), None)
    if first is None:
        raise ValueError('this network has no convolution to shrink: use stem="standard"')
    if first.kernel_size == first.stride != (1, 1):
        raise ValueError('this network cuts its images into patches: use stem="standard"')
    seven = first.kernel_size == (7, 7)
    _replace_first_convolution(
        network, lambda conv: _convolution(conv, kernel=3 if seven else None, stride=1)
    )
    if seven:
        for path, module in network.named_modules():
            if isinstance(module, nn.MaxPool2d):
                _set(network, path, nn.Identity())
                return


def _whiten_at(network: nn.Module, path: str) -> None:
    kinds = (nn.BatchNorm2d, nn.GroupNorm)
    layers = {name: part for name, part in network.named_modules() if isinstance(part, kinds)}
    layer = layers[check_choice("background_norm", path, layers)]
    width = layer.num_features if isinstance(layer, nn.BatchNorm2d) else layer.num_channels
    _set(network, path, BackgroundNorm(width))


def _width(network: nn.Module, name: str) -> int:
    width = getattr(network, "num_features", None)
    if not isinstance(width, int):
        raise TypeError(
            f"the backbone {name!r} must say in its attribute num_features how many features it "
            f"gives, an integer; it has {width!r}"
        )
    return width


def _torchvision() -> Any:
    try:
        from torchvision import models
    except ImportError as error:
        raise ImportError("backbones need torchvision: pip install 'torchlace[train]'") from error
    return models


def _torchvision_names() -> list[str]:
    models = _torchvision()
    known = [name for name in models.list_models() if "/" not in name]
    # Detection, segmentation and video models live a module deeper.
    return [name for name in known if models.get_model_builder(name).__module__.count(".") == 2]


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ImportError("timm backbones need timm: pip install 'torchlace[timm]'") from error
    return timm


def _from_torchvision(name: str, pretrained: bool) -> tuple[nn.Module, int]:
    models = _torchvision()
    network = models.get_model(name, weights="DEFAULT" if pretrained else None)
    if getattr(network, "aux_logits", False):
        network.aux_logits = False
        for branch in ("aux1", "aux2", "AuxLogits"):
            if hasattr(network, branch):
                setattr(network, branch, None)
    if isinstance(network, models.SqueezeNet):  # classifies by a convolution, then averages
        network.classifier[1] = nn.Identity()
        return network, 512
    linear = [(p, m) for p, m in network.named_modules() if isinstance(m, nn.Linear)]
    path, last = linear[-1]
    _set(network, path, nn.Identity())
    return network, last.in_features


def _from_timm(name: str, channels: int, pretrained: bool) -> tuple[nn.Module, int]:
    timm = _timm()
    network: Any = timm.create_model(name, pretrained=pretrained, num_classes=0, in_chans=channels)
    return network, network.num_features


def _replace_first_convolution(
    network: nn.Module, change: Callable[[nn.Conv2d], nn.Conv2d]
) -> None:
    for path, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            _set(network, path, change(module))
            return


def _convolution(
    conv: nn.Conv2d,
    channels: int | None = None,
    kernel: int | None = None,
    stride: int | None = None,
) -> nn.Conv2d:
    """A convolution like ``conv`` but for what is given; weights are kept where shapes allow."""
    size = kernel or int(conv.kernel_size[0])
    new = nn.Conv2d(
        channels or conv.in_channels,
        conv.out_channels,
        size,
        stride=stride or int(conv.stride[0]),
        padding=size // 2 if kernel else conv.padding,  # type: ignore[arg-type]
        bias=conv.bias is not None,
    )
    nn.init.kaiming_normal_(new.weight, mode="fan_out", nonlinearity="relu")
    with torch.no_grad():
        if new.weight.shape == conv.weight.shape:
            new.weight.copy_(conv.weight)
    return new


def _set(network: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)
