import sys

import pytest
import torch

from torchlace.backgrounds import BackgroundNorm
from torchlace.models import Backbone, SmallCNN, create_backbone

WIDTHS = {
    "resnet18": 512,
    "resnet50": 2048,
    "resnext50_32x4d": 2048,
    "wide_resnet50_2": 2048,
    "densenet121": 1024,
    "mobilenet_v3_small": 1024,
    "efficientnet_b0": 1280,
    "vgg11": 4096,
    "small-cnn": 64,
}


@pytest.mark.parametrize("stem", ["standard", "small"])
@pytest.mark.parametrize("name", WIDTHS)
def test_features_are_as_wide_as_promised(name, stem):
    with torch.device("meta"):
        backbone = create_backbone(name, stem=stem)
        features = backbone.eval()(torch.zeros(2, 3, 64, 64))
    assert features.shape == (2, backbone.num_features) == (2, WIDTHS[name])


@pytest.mark.parametrize(("name", "size"), [("googlenet", 64), ("inception_v3", 299)])
def test_networks_with_auxiliary_outputs_give_features_in_training_too(name, size):
    with torch.device("meta"):
        backbone = create_backbone(name)
        features = backbone.train()(torch.zeros(2, 3, size, size))
    assert isinstance(features, torch.Tensor)
    assert features.shape == (2, backbone.num_features)


def shape_before_pooling(name, stem, size):
    with torch.device("meta"):
        network = create_backbone(name, stem=stem).eval().network
        seen = []
        parts = {"resnet18": "layer1", "resnet50": "layer1", "densenet121": "features.denseblock1"}
        last = {"resnet18": "layer4", "resnet50": "layer4", "densenet121": "features"}
        for part in (parts[name], last[name]):
            module = network.get_submodule(part)
            module.register_forward_hook(lambda m, i, out: seen.append(out.shape[-2:]))
        network(torch.zeros(1, 3, size, size))
    return [tuple(shape) for shape in seen]


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "densenet121"])
def test_the_small_stem_keeps_the_resolution(name):
    assert shape_before_pooling(name, "small", 32) == [(32, 32), (4, 4)]
    assert shape_before_pooling(name, "standard", 32) == [(8, 8), (1, 1)]
    assert shape_before_pooling(name, "standard", 224) == [(56, 56), (7, 7)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["resnet18", "small-cnn"])
def test_grey_and_coloured_images(name, channels):
    backbone = create_backbone(name, channels=channels, stem="small")
    images = torch.randn(2, channels, 32, 32, requires_grad=True)
    features = backbone(images)
    assert features.isfinite().all()
    features.sum().backward()
    assert images.grad.abs().sum() > 0
    assert all(p.grad is not None for p in backbone.parameters())


def test_an_embedding_is_linear_and_prelu():
    backbone = create_backbone("small-cnn", channels=1, embedding=7)
    linear, prelu = backbone.embedding
    images = torch.randn(3, 1, 8, 8)
    expected = torch.nn.functional.prelu(linear(backbone.network(images)), prelu.weight)
    torch.testing.assert_close(backbone(images), expected)
    assert backbone.num_features == 7
    assert isinstance(prelu, torch.nn.PReLU)


def test_a_sample_does_not_depend_on_its_batch_in_the_small_network():
    network = SmallCNN(1)
    images = torch.randn(5, 1, 8, 8)
    torch.testing.assert_close(network(images)[:2], network(images[:2]))


@pytest.mark.parametrize("name", ["vit_b_16", "convnext_tiny", "swin_t"])
def test_networks_of_patches_have_no_small_stem(name):
    with torch.device("meta"):
        with pytest.raises(ValueError, match=r'into patches: use stem="standard"'):
            create_backbone(name, stem="small")
        assert isinstance(create_backbone(name), Backbone)


@pytest.mark.parametrize(
    ("name", "near"),
    [("resnet81", "resnet18"), ("densenet12", "densenet121"), ("small_cnn", "small-cnn")],
)
def test_unknown_names_give_the_nearest(name, near):
    with pytest.raises(ValueError, match=rf"unknown backbone '{name}': did you mean .*'{near}'"):
        create_backbone(name)


@pytest.mark.parametrize("name", ["fasterrcnn_resnet50_fpn", "deeplabv3_resnet50", "r3d_18"])
def test_networks_that_do_not_classify_images_are_unknown(name):
    with pytest.raises(ValueError, match="unknown backbone"):
        create_backbone(name)


@pytest.mark.parametrize("name", ["squeezenet1_0", "squeezenet1_1"])
def test_networks_that_classify_by_a_convolution(name):
    backbone = create_backbone(name)
    assert backbone(torch.randn(2, 3, 64, 64)).shape == (2, backbone.num_features)
    assert all("classifier" not in path for path, _ in backbone.named_parameters())


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("timm", "timm/resnet18", "timm"), ("torchvision", "resnet18", "train")],
)
def test_a_missing_library_is_named(module, name, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'torchlace\[{extra}\]'"):
        create_backbone(name)


def test_nothing_is_downloaded_unless_asked_for(monkeypatch):
    asked = []

    def refuse(url, *arguments, **options):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    create_backbone("resnet18")
    assert asked == []
    with pytest.raises(OSError, match="no network"):
        create_backbone("resnet18", pretrained=True)
    assert len(asked) == 1


def test_pretrained_weights_are_kept_where_shapes_allow(monkeypatch):
    from torchvision import models

    donor = models.resnet18()
    monkeypatch.setattr(
        "torchvision.models._api.load_state_dict_from_url", lambda *a, **k: donor.state_dict()
    )
    same = create_backbone("resnet18", pretrained=True).network
    assert torch.equal(same.conv1.weight, donor.conv1.weight)
    small = create_backbone("resnet18", pretrained=True, stem="small", channels=1).network
    assert small.conv1.weight.shape == (64, 1, 3, 3)
    assert torch.equal(small.layer4[1].conv2.weight, donor.layer4[1].conv2.weight)


def test_bad_options_are_errors():
    with pytest.raises(ValueError, match="small-cnn has no pretrained weights"):
        create_backbone("small-cnn", pretrained=True)
    with pytest.raises(ValueError, match="unknown stem 'tiny'"):
        create_backbone("resnet18", stem="tiny")
    with pytest.raises(ValueError, match="embedding must be at least 1"):
        create_backbone("small-cnn", embedding=0)


def test_a_background_takes_the_place_of_a_normalisation():
    backbone = create_backbone("resnet18", stem="small", background_norm="layer4.1.bn2")
    layer = backbone.network.layer4[1].bn2
    assert isinstance(layer, BackgroundNorm)
    assert layer.num_features == 512
    backbone.train()(torch.randn(64, 3, 8, 8)).sum().backward()
    assert layer.background.steps == 1
    assert layer.weight.grad is not None
    backbone.eval()(torch.randn(2, 3, 8, 8))
    assert layer.background.steps == 1
    with pytest.raises(ValueError, match=r"background_norm.*layer4\.1\.bn2"):
        create_backbone("resnet18", background_norm="layer4.1.bn9")
