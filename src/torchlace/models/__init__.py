"""Backbone + head = classifier."""

from torchlace.models.backbones import (
    Backbone,
    SmallCNN,
    backbone_names,
    create_backbone,
    register,
    shrink_stem,
)
from torchlace.models.classifier import Classifier

__all__ = [
    "Backbone",
    "Classifier",
    "SmallCNN",
    "backbone_names",
    "create_backbone",
    "register",
    "shrink_stem",
]
