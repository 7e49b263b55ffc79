import pytest
import torch
from torch import nn

import torchlace as tl
from torchlace.models import SmallCNN

IMAGES, TARGETS = torch.randn(40, 1, 8, 8), torch.arange(40) % 5


def make(head="lace", **options):
    torch.manual_seed(0)
    return tl.Classifier("small-cnn", head, 5, channels=1, **options)


@pytest.mark.parametrize("head", tl.heads.names())
def test_the_state_holds_everything(head):
    model = make(head, embedding=12)
    model.train()
    for _ in range(3):
        model.loss(IMAGES, TARGETS).backward()
    model.calibrate(IMAGES, TARGETS).eval()
    torch.manual_seed(1)
    other = tl.Classifier("small-cnn", head, 5, channels=1, embedding=12)
    other.load_state_dict(model.state_dict())
    other.eval()
    assert torch.equal(other(IMAGES), model(IMAGES))
    assert torch.equal(other.probabilities(IMAGES), model.probabilities(IMAGES))


def test_it_does_what_backbone_and_head_do():
    model = make("softmax").eval()
    features = model.embed(IMAGES)
    assert torch.equal(features, model.backbone(IMAGES))
    assert torch.equal(model(IMAGES), model.head(features))
    assert torch.equal(model.predict(IMAGES), model(IMAGES).argmax(1))
    weight = torch.tensor([1.0, 2, 3, 4, 5])
    options = {"weight": weight, "label_smoothing": 0.1, "reduction": "none"}
    expected = nn.functional.cross_entropy(model(IMAGES), TARGETS, **options)
    torch.testing.assert_close(model.loss(IMAGES, TARGETS, **options), expected)
    assert model.num_classes == 5


def test_calibration_moves_the_temperature_alone():
    model = make().train()
    model.loss(IMAGES, TARGETS)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert model.calibrate(IMAGES, TARGETS) is model
    assert model.training
    moved = [
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    ]
    assert moved == ["head.temperature"]
    model.eval()
    sums = model.probabilities(IMAGES).sum(1)
    torch.testing.assert_close(sums, torch.ones(40))
    cooled = torch.softmax(model(IMAGES) / model.head.temperature, dim=1)
    torch.testing.assert_close(model.probabilities(IMAGES), cooled)


def test_modules_of_your_own():
    head = tl.Softmax(64, 5)
    model = tl.Classifier(SmallCNN(1), head)
    assert model.head is head
    assert model(IMAGES).shape == (40, 5)
    assert tl.Classifier(nn.Flatten(), head)(IMAGES).shape == (40, 5)
    assert tl.Classifier(nn.Flatten(), "lace", 5, num_features=64).head.in_features == 64
    assert make("arcface", head_options={"margin": 0.3}).head.margin == 0.3


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("small-cnn", "lace"), {}, "num_classes is needed"),
        ((SmallCNN(1), "lace", 5), {"stem": "small"}, r"\['stem'\] go with a backbone's name"),
        ((nn.Flatten(), "lace", 5), {}, r"Flatten has no integer num_features.*num_features=512\)"),
        ((SmallCNN(1), "lace", 5), {"num_features": 32}, "gives 64 features, the head takes 32"),
        ((nn.Flatten(), tl.Softmax(64, 5)), {"num_features": 32}, "num_features is 32, the head"),
        ((nn.Flatten(), "lace", 5), {"num_features": 0}, "num_features must be at least 1, got 0"),
        (("small-cnn", tl.Softmax(63, 5)), {}, "gives 64 features, the head takes 63"),
        (("small-cnn", tl.Softmax(64, 5), 6), {}, "num_classes and head_options go with a head's"),
        (("small-cnn", tl.Softmax(64, 5)), {"head_options": {"a": 1}}, "go with a head's name"),
        (("small-cnn", "lacy", 5), {}, "unknown head 'lacy': did you mean 'lace'"),
    ],
)
def test_what_does_not_fit_is_an_error(arguments, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        tl.Classifier(*arguments, **options)
