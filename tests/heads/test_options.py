"""Options that there are not, names that are nearly right, and what a calibrated head says."""

import pytest
import torch
from torch.nn import functional as F

import torchlace as tl
from torchlace.heads import Joint


@pytest.mark.parametrize("name", tl.heads.names())
def test_an_unknown_option_is_named_with_those_there_are(name):
    with pytest.raises(TypeError, match=r"unknown option of \w+ 'why': known: .*chunk.*dtype"):
        tl.heads.create(name, 8, 3, why=1)


def refusal(name, **options):
    try:
        tl.heads.create(name, 8, 3, **options)
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", tl.heads.names())
def test_every_option_that_is_named_is_one(name):
    named = refusal(name, why=1).partition("known: ")[2].split(", ")
    for option in named:
        said = refusal(name, **{option: "nonsense"})
        assert "unknown option" not in said
        assert "multiple values" not in said


def test_a_scale_that_follows_the_training_is_no_option():
    with pytest.raises(TypeError, match=r"unknown option of AdaCos 'scale'.*: chunk.*, sync$"):
        tl.AdaCos(8, 3, scale=30.0)


def test_options_of_the_background_are_sent_there():
    for make in (
        tl.LACE,
        tl.LACE.published,
        lambda *sizes, **o: tl.heads.create("lace", *sizes, **o),
    ):
        option = "form" if make == tl.LACE.published else "ridge"
        with pytest.raises(TypeError, match=rf"background_options={{'{option}': \.\.\.}}"):
            make(8, 3, **{option: 0.1})
    with pytest.raises(TypeError, match=r"unknown option of Within 'ridg': .*'ridge'"):
        tl.LACE(8, 3, background_options={"ridg": 0.1})
    with pytest.raises(TypeError, match="unknown option of LowRank 'ranks': did you mean 'rank'"):
        tl.backgrounds.create("low-rank", 8, 3, ranks=2)


@pytest.mark.parametrize("name", ["LACE", "Lace", "lace ", "lase"])
def test_a_name_that_is_nearly_right(name):
    with pytest.raises(ValueError, match=rf"unknown head '{name}': did you mean 'lace'"):
        tl.heads.create(name, 8, 3)


def calibrated(head):
    features, targets = torch.randn(200, 8), torch.randint(3, (200,))
    return head.eval().calibrate(features, targets), features


@pytest.mark.parametrize("name", tl.heads.names())
def test_the_temperature_is_told_and_makes_probabilities_of_folded_layers(name, recwarn):
    torch.manual_seed(0)
    head = tl.heads.create(name, 8, 3)
    assert "not calibrated yet" in head.describe()
    head, features = calibrated(head)
    assert f"softmax(scores / {head.temperature.item():.4g})" in head.describe()
    folded = head.fold()
    assert f"temperature={head.temperature.item():.4g}" in repr(folded)
    by_hand = F.softmax(folded(features) / folded.temperature, dim=1)
    torch.testing.assert_close(by_hand, head.probabilities(features), rtol=1e-4, atol=1e-6)


def test_a_joint_tells_its_own_temperature():
    head, _ = calibrated(Joint({"a": tl.Softmax(8, 3), "b": tl.LACE(8, 3)}))
    assert head.describe().count("probabilities are") == 1
    assert f"{head.temperature.item():.4g}" in head.describe()
