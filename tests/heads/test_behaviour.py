import copy
from functools import partial

import pytest
import torch
from heads.cases import (
    CLASSES,
    batch,
    cases_where,
    each_path,
    is_classwise,
    make,
    move,
    moved,
    paths_where,
)
from scipy.optimize import minimize_scalar
from torch.nn import functional as F
from torch.testing import assert_close

import torchlace as tl
from torchlace.heads import LACE, Joint, Normalize


def foldable(head):
    return not is_classwise(head) and not isinstance(head, Joint)


@each_path
def test_prediction_is_the_largest_score(case):
    head = moved(case)
    x, _ = batch(32, seed=3)
    assert torch.equal(head.predict(x), head(x).argmax(1))
    assert len(head.predict(x).unique()) > 1


@each_path
def test_probabilities(case):
    head = moved(case)
    x, y = batch(32, seed=3)
    assert_close(head.probabilities(x), torch.softmax(head(x), 1))
    head.calibrate(x, y)
    p = head.probabilities(x)
    assert_close(p.sum(1), torch.ones(32, dtype=p.dtype))
    assert_close(p, torch.softmax(head(x) / head.temperature, 1))
    assert torch.equal(p.argmax(1), head.predict(x))


@each_path
@pytest.mark.parametrize("training", [True, False])
def test_calibration_moves_the_temperature_alone(case, training):
    head = moved(case).train(training)
    before = copy.deepcopy(head.state_dict())
    x, y = batch(32, seed=3, ignored=-100)
    assert head.calibrate(x, y) is head
    assert head.training is training
    after = head.state_dict()
    assert after["temperature"] != before["temperature"]
    del after["temperature"], before["temperature"]
    assert_close(dict(after), dict(before), rtol=0, atol=0)


@each_path
def test_calibration_minimises_the_negative_log_likelihood(case):
    head = moved(case)
    x, y = batch(32, seed=3)
    scores = head(x).detach()
    y = torch.where(torch.arange(32) % 3 == 0, y, scores.argmax(1))

    def nll(log_temperature):
        logits = scores / torch.exp(torch.tensor(log_temperature))
        return F.cross_entropy(logits, y, label_smoothing=1 / 33).item()

    best = minimize_scalar(nll, bounds=(-9.2, 9.2), method="bounded", options={"xatol": 1e-10})
    found = head.calibrate(x, y).temperature.log().item()
    assert nll(found) <= min(best.fun + 1e-12, nll(0.0))
    assert found == pytest.approx(best.x, abs=1e-4)


def test_calibration_on_samples_that_are_all_right_expects_errors():
    logits = 30 * F.one_hot(torch.arange(100) % 5, 5).double() + torch.randn(100, 5).double()
    right = logits.argmax(1)
    temperature = tl.heads.fit_temperature(logits, right)
    unseen = torch.where(torch.arange(100) == 0, (right + 1) % 5, right)
    assert F.cross_entropy(logits / temperature, unseen) < 0.2
    assert F.cross_entropy(logits / 0.1, unseen) > 2


def test_calibration_restores_the_mode_of_every_part():
    head = tl.LACE(6, CLASSES, dtype=torch.float64)
    move(head, 2)
    head.background.eval()
    head.calibrate(*batch(32))
    assert head.training
    assert not head.background.training


def test_calibration_without_labels_says_so():
    x, y = batch()
    with pytest.raises(ValueError, match="at least one labelled sample"):
        tl.Softmax(6, CLASSES, dtype=torch.float64).calibrate(x, torch.full_like(y, -100))


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("head", ["lace", "arcface", "softmax"])
def test_folded_layers_are_traced_and_saved_as_torchscript(head, tmp_path):
    folded = tl.heads.create(head, 16, 5).eval().fold()
    x, other = torch.randn(3, 16), torch.randn(7, 16)
    other[0] = 0
    torch.jit.trace(folded, (x,)).save(tmp_path / "folded.pt")
    assert_close(torch.jit.load(tmp_path / "folded.pt")(other), folded(other))


@cases_where(foldable)
def test_folded_layers_have_the_same_scores(case):
    head = moved(case)
    x, y = batch(32, seed=3)
    head.calibrate(x, y)
    folded = head.fold()
    assert {type(layer) for layer in folded} <= {torch.nn.Linear, Normalize}
    assert_close(folded(x), head(x), rtol=1e-9, atol=1e-9)
    assert_close(folded.probabilities(x), head.probabilities(x), rtol=1e-9, atol=1e-9)
    scores = folded(x)
    move(head, 2)
    assert torch.equal(folded(x), scores)


@paths_where(foldable)
def test_folding_a_head_of_half_precision(case):
    head = moved(case, dtype=torch.float32).bfloat16()
    x, _ = batch(dtype=torch.float32)
    assert_close(head.fold()(x), head(x), rtol=1e-4, atol=1e-4)


@cases_where(lambda head: not foldable(head))
def test_without_a_plain_form_folding_says_so(case):
    with pytest.raises(ValueError, match="plain layers"):
        moved(case).fold()


@each_path
def test_repr_shows_what_matters(case):
    head = make(case)
    text = repr(head)
    assert text.startswith(f"{type(head).__name__}(")
    assert "6, 5" in text
    for name in ("margin", "auxiliary_weight", "signature_space", "weights"):
        if hasattr(head, name):
            assert f"{name}={getattr(head, name)!r}" in text
    if isinstance(head, LACE):
        assert type(head.background).__name__ in text


@each_path
def test_description_names_the_head_and_its_classes(case, recwarn):
    head = make(case)
    text = head.describe()
    assert type(head).__name__ in text
    assert "5 classes" in text


def test_description_warns_where_the_scale_is_too_small():
    with pytest.warns(UserWarning, match=r"scale 1 can't separate 100 classes.*0\.027.*9\.1"):
        text = tl.LACE.published(8, 100).describe()
    assert "0.027" in text


def test_description_of_backgrounds_for_each_class_allows_what_training_reaches(recwarn):
    torch.manual_seed(0)
    head = tl.LACE(4, 5, background="one-vs-all-learned", scale=1.0, dtype=torch.float64)
    features = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([features, *head.parameters()], lr=0.05)
    for _ in range(400):
        loss = head.loss(features, torch.arange(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    told = float(head.describe().partition("a loss of ")[2].partition(";")[0])
    assert told - 1e-3 < loss.item() < tl.functional.loss_floor(5, 1.0) - 0.1
    assert not recwarn


@pytest.mark.parametrize("name", ["lace", "normface", "arcface", "softmax", "lace-learned"])
def test_description_does_not_warn_at_the_automatic_scale(name, recwarn):
    for classes in (3, 10, 100, 1000):
        tl.heads.create(name, 8, classes).describe()
    assert not recwarn


@pytest.mark.parametrize(
    ("name", "settings"),
    {
        "arcface": {"margin": 0.05, "scale": 30},
        "cosface": {"margin": 0.4, "scale": 30},
        "sphereface": {"margin": 1.35, "scale": 64},
        "center": {"auxiliary_weight": 0.1, "softmax_weight": 0.9},
        "amc": {"auxiliary_weight": 0.1, "softmax_weight": 0.9, "margin": 0.5},
        "lace-published": {"scale": 1, "signature_space": "features"},
        "lace": {"signature_space": "whitened"},
        "lace-learned": {"signature_space": "features"},
    }.items(),
)
def test_defaults_are_the_papers(name, settings):
    head = tl.heads.create(name, 8, 10)
    assert {key: getattr(head, key) for key in settings} == settings


@pytest.mark.parametrize("name", ["lace", "lace-learned", "normface"])
def test_the_automatic_scale_means_the_same_for_every_number_of_classes(name):
    for classes in (2, 3, 10, 1000):
        scale = tl.heads.create(name, 8, classes).scale
        assert tl.functional.max_probability(classes, scale) == pytest.approx(0.99)


@pytest.mark.parametrize("make", [tl.AdaCos, partial(tl.LACE, scale="adacos")])
@pytest.mark.parametrize(("classes", "scale"), [(2, 0.98), (10, 3.11), (100, 6.5)])
def test_the_scale_of_adacos_goes_by_its_name(make, classes, scale):
    assert float(make(8, classes).scale) == pytest.approx(scale, abs=0.005)
