"""Backbone + head = classifier; what it predicts, and how it is exported."""

from torchlace.models.backbones import (
    Backbone,
    SmallCNN,
    backbone_names,
    create_backbone,
    register,
    shrink_stem,
)
from torchlace.models.classifier import Classifier
from torchlace.models.export import Served, export_onnx
from torchlace.models.predict import Prediction, predict

__all__ = [
    "Backbone",
    "Classifier",
    "Prediction",
    "Served",
    "SmallCNN",
    "backbone_names",
    "create_backbone",
    "export_onnx",
    "predict",
    "register",
    "shrink_stem",
]
