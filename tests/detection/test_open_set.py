"""Rejecting what belongs to no known class."""

import pickle

import numpy as np
import pytest
import torch
from scipy.stats import beta
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from torch import nn

import torchlace as tl
from torchlace.detection import SCORES, OpenSet, conformal_threshold, samples_needed
from torchlace.estimators import LACEClassifier

X, Y = load_digits(return_X_y=True)
KNOWN = Y < 7
TRAIN = np.arange(len(Y)) < 900


@pytest.fixture(scope="module")
def logistic():
    return LogisticRegression(max_iter=500).fit(X[KNOWN & TRAIN], Y[KNOWN & TRAIN])


def features(count=300, classes=3, width=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    means = 5 * torch.eye(width)[:classes]
    return means[labels] + torch.randn(count, width, generator=generator), labels


def trained_head(name="lace"):
    torch.manual_seed(0)
    head = tl.heads.create(name, 6, 3)
    optimizer = torch.optim.Adam(head.parameters(), 0.05)
    x, y = features()
    for _ in range(40):
        optimizer.zero_grad()
        head.loss(x, y).backward()
        optimizer.step()
    return head


class Plain:
    """A model whose logits are the first three features."""

    def decision_function(self, values):
        return values[:, :3]

    def predict(self, values):
        return values[:, :3].argmax(1)


@pytest.mark.parametrize("score", SCORES)
def test_scores_learn_from_one_half_or_from_other_samples(score, logistic):
    held_x, held_y = X[KNOWN & ~TRAIN], Y[KNOWN & ~TRAIN]
    output = [held_x, logistic.decision_function(held_x), held_y]
    tensors = [torch.from_numpy(part) for part in output]

    def judged(rows):
        learned = SCORES[score].learn(*(part[rows] for part in tensors))
        return SCORES[score].judge(*tensors[:2], learned)

    found = OpenSet(logistic, score=score).fit(held_x, held_y, train=(held_x, held_y))
    scores = judged(np.arange(len(held_x)))
    np.testing.assert_allclose(found.score_samples(held_x), scores, rtol=1e-9, atol=1e-12)
    assert found.threshold_ == conformal_threshold(found.score_samples(held_x), 0.05)
    held, rest = np.split(np.random.default_rng(0).permutation(len(held_x)), [-(-len(held_x) // 2)])
    found = OpenSet(logistic, score=score).fit(held_x, held_y)
    scores = found.score_samples(held_x)
    np.testing.assert_allclose(scores[scores > -1e300], judged(rest)[scores > -1e300], rtol=1e-9)
    assert found.threshold_ == conformal_threshold(scores[held], 0.05)


@pytest.mark.parametrize("score", SCORES)
def test_unknown_digits_are_rejected_more_than_known_ones(score, logistic):
    held = np.flatnonzero(KNOWN & ~TRAIN)
    guarded = OpenSet(logistic, score=score, false_rejection=0.1).fit(X[held[::2]], Y[held[::2]])
    found = guarded.evaluate(X[held[1::2]], X[~KNOWN])
    assert found["rejected_known"] < 0.2
    assert found["rejected_unknown"] > 2 * found["rejected_known"]
    assert found["auroc"] > {"ace": 0.94, "mahalanobis": 0.9}.get(score, 0.7)
    labels = guarded.predict(X)
    rejected = guarded.decision_function(X) < 0
    np.testing.assert_array_equal(labels == -1, rejected)
    np.testing.assert_array_equal(labels[~rejected], logistic.predict(X)[~rejected])


def test_the_threshold_rejects_known_samples_at_the_rate_whatever_their_distribution():
    rng, rate, rejected = np.random.default_rng(0), 0.1, []
    for _ in range(400):
        others, held, new = (rng.standard_cauchy((49, 3)) for _ in range(3))
        guarded = OpenSet(Plain(), score="head", false_rejection=rate)
        guarded.fit(held, train=(others, None))
        rejected.append((guarded.score_samples(new) < guarded.threshold_).mean())
    # 49 held-out samples and rank 5: the chance is 5/50 exactly.
    assert abs(np.mean(rejected) - rate) < 5 * np.std(rejected) / np.sqrt(len(rejected))


def some(rng, number, width=60):
    """Few samples for the number of features, as with the validation images of a network."""
    labels = rng.integers(3, size=number)
    noise = rng.normal(size=(number, width)) * np.linspace(0.2, 2, width) * (1 + labels)[:, None]
    return noise + 3 * np.eye(width)[labels], labels


@pytest.mark.parametrize("score", ["ace", "relative-ace", "nearest-neighbours", "mahalanobis"])
def test_the_rate_is_kept_over_200_splits(score):
    """Its mean is rank / (n + 1) exactly; it scatters as a beta distribution and a count do."""
    rejected, new = [], 400
    for seed in range(200):
        rng = np.random.default_rng(seed)
        guarded = OpenSet(Plain(), score=score, false_rejection=0.1).fit(*some(rng, 198))
        rejected.append((guarded.score_samples(some(rng, new)[0]) < guarded.threshold_).mean())
    # 99 of the 198 set the threshold, at rank 10.
    law = beta(10, 90)
    scatter = np.sqrt(law.var() + law.mean() * (1 - law.mean()) / new)
    assert abs(np.mean(rejected) - 0.1) < 4 * scatter / np.sqrt(200)
    assert 0.8 < np.std(rejected) / scatter < 1.2


def test_the_rate_is_kept_for_each_class():
    """The noisiest class is rejected most: for all together, and at the wanted rate by itself."""
    rates = {}
    for alone in (False, True):
        rejected = []
        for seed in range(200):
            rng = np.random.default_rng(seed)
            options = {"score": "mahalanobis", "false_rejection": 0.1, "per_class": alone}
            x, y = some(rng, 240)
            held, labels = some(rng, 300)
            guarded = OpenSet(Plain(), **options).fit(held, labels, train=(x, y))
            x, y = some(rng, 900)
            out = guarded.decision_function(x) < 0
            rejected.append([out[y == label].mean() for label in range(3)])
        rates[alone] = np.mean(rejected, axis=0)
        error = np.std(rejected, axis=0) / np.sqrt(200)
    assert rates[False].max() > 0.2
    assert (rates[True] < 0.1 + 4 * error).all()
    assert rates[True].max() > 0.08


@pytest.mark.parametrize("rate", [0.5, 0.3, 0.1, 0.07, 0.05, 0.01, 0.003])
def test_the_samples_needed_are_the_fewest(rate):
    count = samples_needed(rate)
    assert conformal_threshold(np.arange(count), rate) == 0
    with pytest.raises(ValueError, match=f"needs {count} scores or more, got {count - 1}"):
        conformal_threshold(np.arange(count - 1), rate)
    assert conformal_threshold(np.arange(999), rate) == round(1000 * rate) - 1


@pytest.mark.parametrize("score", SCORES)
def test_the_absurd_is_never_accepted(score, logistic):
    iris, kinds = load_iris(return_X_y=True)
    even = np.arange(150) % 2 == 0
    for model in (LogisticRegression(max_iter=500), LACEClassifier(random_state=0)):
        model.fit(iris[even], kinds[even])
        guarded = OpenSet(model, score=score).fit(iris[~even], kinds[~even])
        assert (guarded.predict(iris) != -1).mean() > 0.8
        for absurd in (iris + 50, iris - 50, 50 * iris, 1e200 * (iris + 1)):
            assert (guarded.predict(absurd) == -1).all()
        far, farther = guarded.score_samples([iris[0] + 50, iris[0] + 500])
        assert farther < far < -1e300


def test_samples_whose_lengths_overflow_are_rejected(logistic):
    held = KNOWN & ~TRAIN
    guarded = OpenSet(logistic).fit(X[held], Y[held])
    assert guarded.predict(X[:3] * 1e150).tolist() == [-1, -1, -1]


@pytest.mark.parametrize("name", ["lace", "softmax", "arcface"])
@pytest.mark.parametrize("score", SCORES)
def test_heads_take_features(name, score):
    head = trained_head(name)
    x, y = features(seed=1)
    head.train()
    before = {
        key: value.clone() for key, value in head.state_dict().items() if torch.is_tensor(value)
    }
    guarded = OpenSet(head, score=score).fit(x, y)
    found = guarded.evaluate(features(seed=2)[0], -5 * torch.ones(50, 6))
    assert head.training
    for key, value in before.items():
        assert torch.equal(head.state_dict()[key], value), key
    assert found["rejected_known"] < 0.15
    if score in ("ace", "mahalanobis"):
        assert found["rejected_unknown"] == 1
    assert guarded.predict(x.numpy()).shape == (300,)


def test_a_classifier_takes_images():
    torch.manual_seed(0)
    model = tl.Classifier("small-cnn", "lace", 4, channels=1)
    images, labels = torch.randn(120, 1, 8, 8), torch.arange(120) % 4
    guarded = OpenSet(model, batch_size=50).fit(images, labels)
    by_head = OpenSet(model.head).fit(model.eval().embed(images).detach(), labels)
    np.testing.assert_allclose(
        guarded.score_samples(images),
        by_head.score_samples(model.embed(images).detach()),
        rtol=1e-4,
        atol=1e-6,
    )


def test_two_classes_labels_of_text_and_another_mark():
    names = np.array(["zero", "one", "two"])[np.minimum(Y, 2)]
    known = Y < 2
    model = LogisticRegression(max_iter=500).fit(X[known & TRAIN], names[known & TRAIN])
    for score in SCORES:
        guarded = OpenSet(model, score=score, unknown="none").fit(X[known & ~TRAIN])
        assert set(guarded.predict(X)) <= {"zero", "one", "none"}
        assert (guarded.predict(X[known & TRAIN]) == names[known & TRAIN]).mean() > 0.7
    marked = OpenSet(model).fit(X[known & ~TRAIN]).predict(X)
    assert marked.dtype.kind == "U"
    assert set(marked) == {"zero", "one", "unknown"}
    marked = OpenSet(model, unknown=-1).fit(X[known & ~TRAIN]).predict(X[~known])
    assert -1 in marked.tolist()
    assert marked.dtype == object


def test_what_is_rejected_bears_the_label_of_no_class():
    signs = np.where(Y < 4, -1, 1)
    model = LogisticRegression(max_iter=500).fit(X[TRAIN], signs[TRAIN])
    with pytest.raises(ValueError, match="unknown=-1 is one of the model's classes"):
        OpenSet(model).fit(X[~TRAIN], signs[~TRAIN])
    labels = OpenSet(model, unknown=None).fit(X[~TRAIN], signs[~TRAIN]).predict(X)
    assert set(labels) == {-1, 1, None}


@pytest.mark.parametrize("score", SCORES)
def test_labels_that_the_model_does_not_know_are_an_error(score, logistic):
    text = r"none of the model's classes: {}; expected some of 0, 1, 2, 3, 4 and 2 more"
    with pytest.raises(ValueError, match=text.format("[789], [789], [789]")):
        OpenSet(logistic, score=score).fit(X[~TRAIN], Y[~TRAIN])
    held = KNOWN & ~TRAIN
    with pytest.raises(ValueError, match=text.format(r"10\d, .* and 2 more")):
        OpenSet(logistic, score=score).fit(X[held], Y[held] + 100)
    with pytest.raises(ValueError, match=text.format(r"'\d', .* and 2 more")):
        OpenSet(logistic, score=score).fit(X[held], Y[held].astype(str))
    x, y = features()
    with pytest.raises(ValueError, match="classes: 3; expected some of 0, 1, 2:"):
        OpenSet(trained_head(), score=score).fit(x, y + 1)


def test_labels_may_be_of_some_classes_and_of_another_type(logistic):
    held = (Y < 5) & ~TRAIN
    usual = OpenSet(logistic).fit(X[held], Y[held])
    for labels in (Y[held].astype(float), torch.from_numpy(Y[held]), Y[held].tolist()):
        assert OpenSet(logistic).fit(X[held], labels).threshold_ == usual.threshold_


def test_models_that_do_not_say_their_classes_may_have_any():
    class Named:
        def decision_function(self, values):
            return values[:, :3]

        def predict(self, values):
            return np.array(["a", "b", "c"])[values[:, :3].argmax(1)]

    x, y = features()
    guarded = OpenSet(Named()).fit(x.numpy(), np.array(["a", "b", "c"])[y])
    by_number = OpenSet(trained_head()).fit(x, y)
    assert guarded.threshold_ == pytest.approx(by_number.threshold_, rel=1e-6)


def test_without_labels_the_predictions_serve(logistic):
    held = KNOWN & ~TRAIN
    found = OpenSet(logistic).fit(X[held]).evaluate(X[held], X[~KNOWN])
    assert found["auroc"] > 0.9


def test_copies():
    head = trained_head()
    x, y = features()
    guarded = OpenSet(head).fit(x, y)
    again = pickle.loads(pickle.dumps(guarded))
    np.testing.assert_array_equal(again.predict(x), guarded.predict(x))
    copy = clone(guarded)
    assert copy.get_params()["false_rejection"] == 0.05
    with pytest.raises(NotFittedError):
        copy.predict(x)
    np.testing.assert_array_equal(copy.fit(x, y).score_samples(x), guarded.score_samples(x))


@pytest.mark.parametrize(
    ("options", "labels", "rows", "message"),
    [
        ({"score": "enrgy"}, None, 300, "did you mean 'energy'"),
        ({"false_rejection": 1.5}, None, 300, "false_rejection must lie in"),
        ({"batch_size": 0}, None, 300, "batch_size must be at least 1"),
        (
            {"false_rejection": 0.001},
            None,
            300,
            "needs 999 samples of known classes in the half .* got 150: give about 1998 or more",
        ),
        ({"score": "ace"}, np.zeros(300, int), 300, "of one class only"),
        ({}, np.zeros(7, int), 300, r"y must have shape \(300,\)"),
        ({"unknown": 2}, None, 300, "unknown=2 is one of the model's classes"),
        ({"false_rejection": 0.3}, None, 4, "needs 3 samples of known classes .* got 2"),
        ({"per_class": True}, np.repeat([0, 1, 2], [140, 140, 20]), 300, "needs 19 .* of class 2 "),
    ],
)
def test_bad_input_is_an_error(options, labels, rows, message):
    x, _ = features()
    with pytest.raises(ValueError, match=message):
        OpenSet(trained_head(), **options).fit(x[:rows], labels)


def test_nan_features_are_an_error(logistic):
    x, y = features()
    x[3, 2] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        OpenSet(trained_head()).fit(x, y)


def test_features_that_do_not_vary_are_an_error():
    x = torch.eye(6)[torch.arange(60) % 3]
    with pytest.raises(ValueError, match="do not vary within the classes, so"):
        OpenSet(trained_head(), score="mahalanobis").fit(x, np.arange(60) % 3)
    with pytest.raises(ValueError, match="do not vary, so"):
        OpenSet(trained_head()).fit(0 * x, np.arange(60) % 3)


@pytest.mark.parametrize("model", [nn.Linear(6, 3), object()])
def test_other_models_are_an_error(model):
    with pytest.raises(TypeError, match=r"torchlace\.Classifier"):
        OpenSet(model).fit(features()[0])


def test_images_as_they_lie_in_a_file_are_an_error():
    images = np.random.default_rng(0).integers(256, size=(40, 1, 8, 8), dtype=np.uint8)
    model = tl.Classifier("small-cnn", "lace", 4, channels=1)
    with pytest.raises(TypeError, match=r"got torch\.uint8: .*prepare\(images\)"):
        OpenSet(model).fit(images)
    guarded = OpenSet(model).fit(images / np.float32(255), np.arange(40) % 4)
    with pytest.raises(TypeError, match="prepared as for training"):
        guarded.predict(torch.from_numpy(images))


def test_what_is_no_array_of_samples_is_an_error():
    x, y = features()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y))
    with pytest.raises(TypeError, match=r"array or tensor of samples.*got DataLoader"):
        OpenSet(trained_head()).fit(loader)


def test_the_estimator_of_this_package():
    model = LACEClassifier(random_state=0).fit(X[KNOWN & TRAIN], Y[KNOWN & TRAIN])
    held = KNOWN & ~TRAIN
    for score in ("ace", "head"):
        found = OpenSet(model, score=score).fit(X[held], Y[held]).evaluate(X[held], X[~KNOWN])
        assert found["auroc"] > 0.7


@pytest.mark.parametrize("kind", ["arrays", "lists", "frames"])
def test_models_of_scikit_learn_get_batches_too(logistic, kind):
    import pandas

    sizes = []

    class Counting(LogisticRegression):
        def decision_function(self, values):
            sizes.append(len(values))
            return super().decision_function(values)

    make = {"arrays": np.asarray, "lists": np.ndarray.tolist, "frames": pandas.DataFrame}[kind]
    known = make(X[KNOWN])
    model = Counting(max_iter=100).fit(known, Y[KNOWN])
    guarded = OpenSet(model, batch_size=400).fit(known, Y[KNOWN])
    assert set(sizes) == {400, KNOWN.sum() % 400}
    whole = OpenSet(model, batch_size=10**6).fit(known, Y[KNOWN])
    assert guarded.threshold_ == pytest.approx(whole.threshold_, rel=1e-12)
    np.testing.assert_array_equal(guarded.predict(make(X)), whole.predict(make(X)))
    with pytest.raises(ValueError, match="minimum of 1 is required"):
        guarded.predict(X[:0])


def test_a_clone_keeps_what_an_estimator_learned(logistic):
    held = KNOWN & ~TRAIN
    guarded = OpenSet(logistic, false_rejection=0.1).fit(X[held], Y[held])
    copy = clone(guarded)
    assert isinstance(copy.model, FrozenEstimator)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert clone(copy).model.estimator is logistic
    copy.fit(X[held], Y[held])
    np.testing.assert_array_equal(copy.predict(X), guarded.predict(X))
    assert isinstance(clone(OpenSet(LogisticRegression())).model, LogisticRegression)


def test_max_softmax_of_an_estimator_is_its_own_probability():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X[:, 0] > 0).astype(int)
    models = [GaussianNB(), RandomForestClassifier(10, random_state=0), LogisticRegression(C=0.01)]
    for model in models:
        guarded = OpenSet(model.fit(X, y), score="max-softmax").fit(X, y)
        expected = model.predict_proba(X).max(1)
        np.testing.assert_allclose(guarded.score_samples(X), expected, rtol=1e-9)
    without = OpenSet(RidgeClassifier().fit(X, y), score="max-softmax").fit(X, y)
    logits = np.abs(without.model.decision_function(X))
    np.testing.assert_allclose(without.score_samples(X), 1 / (1 + np.exp(-logits)), rtol=1e-9)
    with pytest.raises(TypeError, match="GaussianNB has no decision_function"):
        OpenSet(models[0], score="energy").fit(X, y)
