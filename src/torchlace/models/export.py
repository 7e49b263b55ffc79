"""A classifier for use without torchlace: one module of plain layers, and an ONNX file of it."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._files import write_whole
from torchlace.heads import Folded, Head
from torchlace.models.classifier import Classifier

# Largest difference of a probability that rounding explains.
_TOLERANCE = 1e-4


def export_onnx(
    model: Classifier,
    path: Path | str,
    shape: tuple[int, int, int],
    *,
    prepare: Callable[[Tensor], Tensor] | None = None,
    class_names: Sequence[str] = (),
) -> float:
    """Write a classifier as an ONNX file, and compare what ONNX Runtime makes of it.

    The file takes ``images``, any number of them, and gives ``scores`` and ``probabilities``, at
    the fitted temperature. The names of the classes are in its metadata, as JSON.

    Args:
        model: a trained classifier.
        path: the file; it appears whole and checked, or not at all.
        shape: channels, height and width of the images.
        prepare: the transform of evaluation; with it the images are uint8, without it prepared
            float32.
        class_names: a name for each class.

    Returns:
        The largest difference of a probability between the file and the model.

    Raises:
        ImportError: without the extra ``onnx``.
        ValueError: if torch has no ONNX form of the model, the file gives other probabilities, or
            it can't be written.
    """
    onnx, runtime = _packages()
    path, served = Path(path), Served(model, prepare)
    images = _images(shape, prepare is not None)
    expected = served(images)[1]
    program = _program(served, images)
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = "class_names", json.dumps(list(class_names), ensure_ascii=False)
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found = torch.from_numpy(session.run(["probabilities"], {"images": images.numpy()})[0])
    difference = float((found - expected).abs().max())
    if not difference <= _TOLERANCE:
        raise ValueError(
            f"{path} was not written: its probabilities would differ from the model's by "
            f"{difference:.2g}"
        )
    write_whole(path, lambda file: file.write(content), ValueError, folders=True)
    return difference


class Served(nn.Module):
    """A classifier as it is served: prepares images, gives scores and calibrated probabilities.

    The head is folded into plain layers; one that has no such form is taken as it is. Everything
    is a copy on the CPU, in fp32 and evaluation mode.

    Args:
        model: a trained classifier.
        prepare: the transform of evaluation, such as :class:`torchlace.data.Prepare`; None for
            images that are prepared already.

    Example:
        >>> from torchlace.data import Prepare
        >>> model = Classifier("small-cnn", num_classes=10, channels=1)
        >>> served = Served(model, Prepare([0.5], [0.25]))
        >>> scores, probabilities = served(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
        >>> scores.shape, probabilities.shape
        (torch.Size([2, 10]), torch.Size([2, 10]))
    """

    def __init__(
        self, model: Classifier, prepare: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
        self.prepare = prepare
        self.backbone = model.backbone
        self.head = _plain(model.head)
        self.eval()

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and probabilities, (N, C) each."""
        if self.prepare is not None:
            images = self.prepare(images)
        scores: Tensor = self.head(self.backbone(images))
        return scores, torch.softmax(scores / self.head.temperature, dim=1)


def _packages() -> tuple[Any, Any]:
    try:
        import_module("onnxscript")  # torch writes by it
        return import_module("onnx"), import_module("onnxruntime")
    except ImportError as error:
        raise ImportError(
            f"export to ONNX needs pip install 'torchlace[onnx]' ({error})"
        ) from error


def _images(shape: tuple[int, int, int], raw: bool) -> Tensor:
    # Three: a batch of one or two may be taken for a constant.
    generator = torch.Generator().manual_seed(0)
    if raw:
        return torch.randint(256, (3, *shape), generator=generator, dtype=torch.uint8)
    return torch.randn(3, *shape, generator=generator)


def _program(served: Served, images: Tensor) -> Any:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.onnx.export(
                served,
                (images,),
                dynamo=True,
                verbose=False,
                input_names=["images"],
                output_names=["scores", "probabilities"],
                dynamic_shapes=({0: torch.export.Dim("images")},),
            )
        except torch.onnx.OnnxExporterError as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise ValueError(
                "torch can't write this classifier as ONNX: "
                f"{str(cause).partition(chr(10))[0]}. Its weights are in its state_dict"
            ) from error


def _plain(head: Head) -> Folded | Head:
    try:
        return head.fold().requires_grad_(False)
    except ValueError:
        return head
