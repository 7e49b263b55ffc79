"""ONNX files against the models they are made from."""

import json

import pytest
import torch
from training.processes import torchlace

import torchlace as tl
from torchlace.data import Prepare
from torchlace.models import Served, export_onnx

HEADS = ["lace", "softmax", "arcface", "lace-published"]


def trained(head, backbone="small-cnn", **options):
    """A classifier with statistics, and a temperature, that are not the first ones."""
    torch.manual_seed(0)
    model = tl.Classifier(backbone, head, 5, channels=3, **options)
    images, targets = torch.randn(64, 3, 16, 16), torch.arange(64) % 5
    for _ in range(3):
        model.loss(images, targets)
    model.eval()
    model.head.temperature.fill_(0.4)
    return model


@pytest.mark.parametrize("head", [*HEADS, "one-vs-all"])
def test_served_is_the_model(head):
    options = {"head_options": {"background": head}} if head == "one-vs-all" else {}
    model = trained("lace" if options else head, **options)
    prepare = Prepare([0.4, 0.5, 0.6], [0.2, 0.3, 0.2], resize=20, crop=16)
    images = torch.randint(256, (7, 3, 18, 18), dtype=torch.uint8)
    scores, probabilities = Served(model.train(), prepare)(images)
    model.eval()
    torch.testing.assert_close(scores, model(prepare(images)), rtol=1e-4, atol=1e-5)
    expected = model.probabilities(prepare(images))
    torch.testing.assert_close(probabilities, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [*HEADS, "one-vs-all", "low-rank"])
def test_the_file_gives_the_probabilities_of_the_model(head, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    options = {} if head in HEADS else {"head_options": {"background": head}}
    model = trained("lace" if options else head, **options)
    prepare = Prepare([0.4, 0.5, 0.6], [0.2, 0.3, 0.2])
    names = ["a", "b", "ç", "d", "e"]
    path = tmp_path / "model.onnx"
    export_onnx(model, path, (3, 16, 16), prepare=prepare, class_names=names)
    assert [each.name for each in tmp_path.iterdir()] == ["model.onnx"]
    session = runtime.InferenceSession(str(path))
    assert json.loads(session.get_modelmeta().custom_metadata_map["class_names"]) == names
    for count in (1, 2, 11):
        images = torch.randint(256, (count, 3, 16, 16), dtype=torch.uint8)
        scores, probabilities = map(torch.from_numpy, session.run(None, {"images": images.numpy()}))
        with torch.no_grad():
            torch.testing.assert_close(scores, model(prepare(images)), rtol=1e-3, atol=1e-4)
            expected = model.probabilities(prepare(images))
        torch.testing.assert_close(probabilities, expected, rtol=1e-3, atol=1e-4)


def test_a_run_is_exported(tmp_path):
    torchlace("train", "--epochs", "2", "--run", "run", "--quiet", folder=tmp_path)
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    done = torchlace("export", "run", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("wrote run/model.onnx: uint8 images, (N, 1, 8, 8), to scores")
    assert (tmp_path / "run" / "model.onnx").is_file()
    done = torchlace("export", "run", "-o", "run/config.yaml/model.onnx", folder=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "model.onnx could not be written (File exists)" in done.err


def test_what_can_t_be_exported_is_one_line(tmp_path):
    for arguments, said in (
        (("nowhere",), "nowhere holds no run"),
        (("nowhere", "-o", "model.pt"), "--out must end in .onnx, got model.pt"),
    ):
        done = torchlace("export", *arguments, folder=tmp_path)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert said in done.err


def test_without_the_extra_it_says_what_to_install(tmp_path):
    torchlace("train", "--epochs", "1", "--run", "run", "--quiet", folder=tmp_path)
    package = tmp_path / "without" / "onnx"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named onnx')")
    done = torchlace("export", "run", folder=tmp_path, before_all_else=tmp_path / "without")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "pip install 'torchlace[onnx]'" in done.err


def test_what_torch_has_no_form_for_is_an_error_and_no_file(tmp_path):
    pytest.importorskip("onnxruntime")

    class Odd(torch.nn.Module):
        num_features = 8

        def forward(self, images):
            return torch.special.airy_ai(images.flatten(1)[:, :8])

    model = tl.Classifier(Odd(), tl.LACE(8, 5)).eval()
    with pytest.raises(ValueError, match="can't write this classifier as ONNX"):
        export_onnx(model, tmp_path / "model.onnx", (3, 16, 16))
    assert not list(tmp_path.iterdir())
