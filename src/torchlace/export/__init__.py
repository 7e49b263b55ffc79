"""Classifiers for use without torchlace: plain layers, and ONNX files."""

from torchlace.export.onnx import export_onnx
from torchlace.export.served import Served

__all__ = ["Served", "export_onnx"]
