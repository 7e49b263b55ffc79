"""Backbone + head = classifier."""

from torchlace.models.backbones import Backbone, SmallCNN, create_backbone, shrink_stem
from torchlace.models.classifier import Classifier

__all__ = ["Backbone", "Classifier", "SmallCNN", "create_backbone", "shrink_stem"]
