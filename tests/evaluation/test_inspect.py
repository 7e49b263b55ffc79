import json

import pytest
import torch
from evaluation.runs import CASES, copied, trained
from sklearn import metrics
from torch.nn import functional as F

from torchlace.evaluation import inspect, silhouette_score
from torchlace.heads import LACE, Joint
from torchlace.runs import load_run
from torchlace.training import Run

SINGLE_BACKGROUND = [
    "joint",
    "lace",
    "lace-learned",
    "lace-published",
    "low-rank",
    "low-rank-learned",
    "no-mean",
    "no-covariance",
    "neither",
    "in-features",
    "nonnegative",
]
CLASSWISE = ["one-vs-all", "one-vs-all-learned", "one-vs-one"]
PLAIN = sorted(set(CASES) - {*SINGLE_BACKGROUND, *CLASSWISE})


def head_of(name):
    head = load_run(trained(name), "cpu").model.head
    return head.heads["lace"] if isinstance(head, Joint) else head


@pytest.mark.parametrize("name", CASES)
def test_the_figures_of_the_run_itself(name):
    found = inspect(trained(name), device="cpu")
    result = Run(trained(name)).result()
    assert found.result == result
    assert found.scores["accuracy"] == result["test_accuracy"]
    assert found.scores["top5_accuracy"] == result["test_top5_accuracy"]
    assert found.scores["loss"] == pytest.approx(result["test_loss"], rel=1e-5)
    assert found.scores["calibrated_loss"] == pytest.approx(
        result["test_calibrated_loss"], rel=1e-5
    )
    assert found.temperature == result["temperature"]
    guesses = found.logits.argmax(1)
    assert found.scores["confusion"] == metrics.confusion_matrix(found.labels, guesses).tolist()
    homogeneity = metrics.homogeneity_score(found.labels, guesses)
    assert found.scores["predicted_homogeneity"] == pytest.approx(homogeneity, abs=1e-5)
    assert found.class_names == [str(digit) for digit in range(10)]
    assert [row["epoch"] for row in found.history] == [1, 2]
    assert set(found.history[0]) == {
        *("epoch", "train_loss", "val_loss", "val_accuracy", "lr", "images_per_second"),
        "seconds",
    }


@pytest.mark.parametrize("name", CASES)
def test_everything_is_written_as_plain_json(name):
    found = inspect(trained(name), device="cpu")
    text = (trained(name) / "evaluation.json").read_text()
    written = json.loads(text, parse_constant=pytest.fail)
    assert written.pop("digest").startswith("sha256:")
    assert written == found.scores


@pytest.mark.parametrize("name", PLAIN)
def test_heads_without_background(name):
    found = inspect(trained(name), device="cpu")
    assert found.whitened is None
    assert set(found.scores["clusters"]) == {"raw", "raw_sphere"}
    assert "whitening" not in found.scores
    assert torch.equal(found.signatures, head_of(name).weight)
    assert torch.equal(found.raw_signatures, found.signatures)
    cosines = F.cosine_similarity(found.features[:, None], found.signatures, dim=2)
    angles = cosines.double().clamp(-1, 1).acos().rad2deg()
    truth = angles.gather(1, found.labels[:, None])
    assert found.scores["angles"]["true"]["mean"] == pytest.approx(truth.mean().item(), rel=1e-4)


@pytest.mark.parametrize("name", SINGLE_BACKGROUND)
def test_heads_with_one_background(name):
    found, head = inspect(trained(name), device="cpu"), head_of(name)
    assert isinstance(head, LACE)
    assert set(found.scores["clusters"]) == {"raw", "whitened", "raw_sphere", "whitened_sphere"}
    with torch.no_grad():
        assert torch.allclose(found.whitened, head.whiten(found.features), atol=1e-5)
        logits = head(found.features)
        # Signatures among the features have the direction of their whitened selves.
        lifted = head.whiten(found.raw_signatures)
    agreement = F.cosine_similarity(lifted, found.signatures)
    assert torch.allclose(agreement, torch.ones(10), atol=1e-3)
    assert lifted.norm(dim=1).allclose(found.whitened.norm(dim=1).median(), rtol=0.02)
    cosines = F.cosine_similarity(found.whitened[:, None], found.signatures, dim=2)
    bias = 0 if head.bias is None else head.bias
    assert torch.allclose(cosines * head.scale + bias, logits, atol=1e-4)
    for space, points in (("raw", found.features), ("whitened", found.whitened)):
        score = silhouette_score(points, found.labels)
        assert found.scores["clusters"][space]["silhouette"] == pytest.approx(score, abs=1e-6)
        score = silhouette_score(F.normalize(points), found.labels)
        space = f"{space}_sphere"
        assert found.scores["clusters"][space]["silhouette"] == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("name", SINGLE_BACKGROUND)
def test_the_spectrum_is_that_of_the_background(name):
    found, background = inspect(trained(name), device="cpu"), head_of(name).background
    scores = found.scores["whitening"]
    with torch.no_grad():
        factor = background.transform(torch.eye(background.in_features, dtype=torch.float64))
    precision = factor @ factor.mT
    expected = torch.linalg.eigvalsh(precision).reciprocal()
    assert scores["spectrum"] == pytest.approx(expected.tolist(), rel=1e-5)
    centred = (found.whitened - found.whitened.mean(0)).double()
    covariance = centred.mT @ centred / len(centred)
    largest = torch.linalg.eigvalsh(covariance)[-1].item()
    assert scores["white_spectrum"][0] == pytest.approx(largest, rel=1e-4)
    assert len(scores["white_spectrum"]) == background.in_features


@pytest.mark.parametrize("name", CLASSWISE)
def test_heads_with_a_background_for_each_class(name):
    found, head = inspect(trained(name), device="cpu"), head_of(name)
    assert found.whitened is None
    assert set(found.scores["clusters"]) == {"raw", "raw_sphere"}
    assert torch.equal(found.signatures, found.raw_signatures)
    with torch.no_grad():
        directions = head.background.transform(
            found.signatures - head.background.mean.float().mean(0)
        )
        cosines = head(found.features) / head.scale
    aligned = F.cosine_similarity(directions, head.signatures)
    assert torch.allclose(aligned, torch.ones(10), atol=1e-4)
    truth = cosines.double().acos().rad2deg().gather(1, found.labels[:, None])
    assert found.scores["angles"]["true"]["mean"] == pytest.approx(truth.mean().item(), rel=1e-5)


def test_a_class_without_test_images_has_no_accuracy(tmp_path, monkeypatch):
    from torchlace.data import ImageData, MemoryImages
    from torchlace.evaluation import kept

    real = kept.read_data

    def without_nines(loaded, root):
        data = real(loaded, root)
        keep = data.test.labels != 9
        test = MemoryImages(data.test.images[keep], data.test.labels[keep])
        return ImageData(data.name, data.train, test, data.class_names, data.mirror, "other")

    monkeypatch.setattr(kept, "read_data", without_nines)
    found = inspect(copied("lace", tmp_path), device="cpu")
    assert found.scores["class_accuracy"][9] is None
    assert None not in found.scores["class_accuracy"][:9]
    assert len(found.scores["confusion"]) == 10


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_images_for_clusters(count, tmp_path, monkeypatch):
    from torchlace.data import ImageData, MemoryImages
    from torchlace.evaluation import kept

    real = kept.read_data

    def few(loaded, root):
        data = real(loaded, root)
        chosen = torch.tensor([0, int((data.test.labels != data.test.labels[0]).nonzero()[0])])
        chosen = chosen[:count]
        test = MemoryImages(data.test.images[chosen], data.test.labels[chosen])
        return ImageData(data.name, data.train, test, data.class_names, data.mirror, "other")

    monkeypatch.setattr(kept, "read_data", few)
    found = inspect(copied("lace", tmp_path), device="cpu")
    assert found.scores["clusters"] == {}
    assert len(found.features) == count
