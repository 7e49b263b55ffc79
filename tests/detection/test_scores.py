"""Scores of samples of no known class, against formulas in NumPy, scikit-learn and pytorch-ood."""

import numpy as np
import pytest
import torch
from pytorch_ood import detector as reference
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from scipy.stats import spearmanr
from sklearn.covariance import ledoit_wolf
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)
from sklearn.neighbors import NearestNeighbors

from torchlace.detection import (
    SCORES,
    aupr,
    auroc,
    fpr_at_recall,
    separation,
    separations,
)

RNG = np.random.default_rng(0)
CLASSES = 4
LABELS = np.arange(400) % CLASSES
WEIGHTS, BIAS = RNG.normal(size=(CLASSES, 7)), RNG.normal(size=CLASSES)
MEANS = 3 * RNG.normal(size=(CLASSES, 7)) + 2
MIXING = RNG.normal(size=(7, 7))
TRAIN = MEANS[LABELS] + RNG.normal(size=(400, 7)) @ MIXING
SAMPLES = np.concatenate([TRAIN[:30] + 0.1, 4 * RNG.normal(size=(30, 7)), 50 + TRAIN[:5]])


def logits_of(x):
    return x @ WEIGHTS.T + BIAS


def found(name, train=TRAIN, labels=LABELS, samples=SAMPLES):
    tensors = [torch.from_numpy(part) for part in (train, logits_of(train), labels)]
    score = SCORES[name]
    known = score.learn(*tensors)
    return score.judge(torch.from_numpy(samples), torch.from_numpy(logits_of(samples)), known)


def squared_distances(x, means, deviations):
    inverse = np.linalg.inv(ledoit_wolf(deviations, assume_centered=True)[0])
    return cdist(x, means, "mahalanobis", VI=inverse) ** 2


def parts(train):
    means = np.stack([train[c == LABELS].mean(0) for c in range(CLASSES)])
    return means, train - means[LABELS], train - train.mean(0)


def cosines(x, means, deviations):
    inverse = np.linalg.inv(ledoit_wolf(deviations, assume_centered=True)[0])
    y, t = x - means.mean(0), means - means.mean(0)
    lengths = np.outer(*(np.sqrt(np.einsum("nd,de,ne->n", v, inverse, v)) for v in (y, t)))
    return y @ inverse @ t.T / lengths


def by_hand(name):
    """Each score as its authors write it, in NumPy."""
    x, logits = SAMPLES, logits_of(SAMPLES)
    means, within, total = parts(TRAIN)
    directions = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (TRAIN, x)]
    if name == "mahalanobis++":
        own, deviations, _ = parts(directions[0])
        return -squared_distances(directions[1], own, deviations).min(1)
    if name == "nearest-neighbours":
        found, _ = NearestNeighbors(n_neighbors=1).fit(directions[0]).kneighbors(directions[1])
        return -found[:, -1]
    if name == "fdbd":
        scores = []
        for sample, values in zip(x, logits, strict=True):
            best = values.argmax()
            others = [c for c in range(CLASSES) if c != best]
            steps = [
                (values[best] - values[c]) / np.linalg.norm(WEIGHTS[best] - WEIGHTS[c])
                for c in others
            ]
            scores.append(np.mean(steps) / np.linalg.norm(sample - TRAIN.mean(0)))
        return np.array(scores)
    nearest = squared_distances(x, means, within).min(1)
    usual = np.sqrt(np.sort(squared_distances(TRAIN, means, within).min(1))[199])
    chances = softmax(logits, 1)
    inside = cosines(x, means, within)
    return {
        "max-softmax": chances.max(1),
        "energy": logsumexp(logits, 1),
        "head": logits.max(1),
        "gen": -((chances * (1 - chances)) ** 0.1).sum(1),
        "mahalanobis": -nearest,
        "relative-mahalanobis": squared_distances(x, TRAIN.mean(0)[None], total)[:, 0] - nearest,
        "ace": cosines(x, means, total).max(1),
        "relative-ace": inside.max(1) - inside.mean(1),
        "ace-length": cosines(x, means, total).max(1) / np.maximum(np.sqrt(nearest) / usual, 1),
    }[name]


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_their_formulas(name):
    np.testing.assert_allclose(found(name), by_hand(name), rtol=1e-6, atol=1e-9)


def torch_scores(detector, x):
    train, labels = torch.from_numpy(TRAIN).float(), torch.from_numpy(LABELS)
    return -detector.fit_features(train, labels).predict_features(torch.from_numpy(x).float())


@pytest.mark.parametrize(
    ("name", "detector"),
    [
        ("max-softmax", reference.MaxSoftmax),
        ("energy", reference.EnergyBased),
        ("head", reference.MaxLogit),
        ("gen", reference.GEN),
    ],
)
def test_scores_of_logits_are_those_of_pytorch_ood(name, detector):
    logits = torch.from_numpy(logits_of(SAMPLES[:60])) / 9  # it bounds probabilities
    score = SCORES[name].judge(logits, logits, None)
    expected = -detector(None).predict_logits(logits) * (CLASSES if name == "gen" else 1)
    np.testing.assert_allclose(score, expected, rtol=1e-6)


def test_scores_of_features_are_those_of_pytorch_ood():
    expected = torch_scores(reference.KNN(None, k=1), SAMPLES)
    np.testing.assert_allclose(found("nearest-neighbours"), expected, atol=1e-3)
    layer = torch.nn.Linear(7, CLASSES)
    layer.weight.data, layer.bias.data = (torch.from_numpy(v).float() for v in (WEIGHTS, BIAS))
    expected = torch_scores(reference.fDBD(None, layer), SAMPLES)
    np.testing.assert_allclose(found("fdbd"), expected, rtol=1e-4)
    # These two know no shrinkage, and RMD subtracts scatter of another size from another.
    expected = torch_scores(reference.Mahalanobis(None), SAMPLES)
    assert spearmanr(found("mahalanobis"), expected).statistic > 0.97


def test_the_kth_neighbour_of_many_samples_is_farther():
    train = np.tile(TRAIN, (5, 1))
    nearest = NearestNeighbors(n_neighbors=2).fit(train / np.linalg.norm(train, axis=1)[:, None])
    expected, _ = nearest.kneighbors(SAMPLES / np.linalg.norm(SAMPLES, axis=1)[:, None])
    score = found("nearest-neighbours", train, np.tile(LABELS, 5))
    np.testing.assert_allclose(score, -expected[:, 1], atol=1e-7)


@pytest.mark.parametrize("name", SCORES)
def test_scores_see_no_order_and_no_batches(name):
    order = RNG.permutation(len(TRAIN))
    whole = found(name)
    np.testing.assert_allclose(found(name, TRAIN[order], LABELS[order]), whole, rtol=1e-8)
    np.testing.assert_allclose(found(name, samples=SAMPLES[:9]), whole[:9], rtol=1e-12)


@pytest.mark.parametrize("name", ["ace", "relative-ace", "relative-mahalanobis", "mahalanobis"])
def test_scores_that_whiten_do_not_see_units(name):
    matrix = np.linalg.qr(RNG.normal(size=(7, 7)))[0] * 3
    train, samples = TRAIN @ matrix + 5, SAMPLES @ matrix + 5
    np.testing.assert_allclose(found(name, train, samples=samples), found(name), rtol=1e-7)


@pytest.mark.parametrize("ties", [False, True])
def test_measures_are_those_of_scikit_learn(ties):
    known, unknown = RNG.normal(1, 1, 200), RNG.normal(0, 1, 150)
    if ties:
        known, unknown = known.round(1), unknown.round(1)
    labels, scores = np.repeat([1, 0], [200, 150]), np.concatenate([known, unknown])
    assert auroc(known, unknown) == pytest.approx(roc_auc_score(labels, scores))
    pairs = (known[:, None] > unknown) + 0.5 * (known[:, None] == unknown)
    assert auroc(known, unknown) == pytest.approx(pairs.mean())
    wrong, right, _ = roc_curve(labels, scores, drop_intermediate=False)
    for recall in (0.5, 0.8, 0.95):
        expected = wrong[right >= recall - 1e-9][0]
        assert fpr_at_recall(known, unknown, recall) == pytest.approx(expected)
    precision, recall, _ = precision_recall_curve(labels, scores)
    steps = -np.diff(recall) @ precision[:-1]
    assert aupr(known, unknown) == pytest.approx(steps)
    found = separation(known, unknown)
    expected = average_precision_score(1 - labels, -scores)
    assert found["aupr_unknown"] == pytest.approx(expected)
    assert list(found) == ["auroc", "fpr_at_95_recall", "aupr", "aupr_unknown"]


def test_measures_of_nothing_are_an_error():
    for measure in (auroc, fpr_at_recall, aupr, separation):
        with pytest.raises(ValueError, match="known and of unknown"):
            measure([], [1.0])
    with pytest.raises(ValueError, match="recall must lie in"):
        fpr_at_recall([1.0], [1.0], 0)


def test_all_scores_of_a_model_at_once():
    def both(x):
        return torch.from_numpy(x).float(), torch.from_numpy(logits_of(x)).float()

    sets = {"near": both(SAMPLES[30:60]), "far": both(SAMPLES[60:])}
    results = separations(both(TRAIN), torch.from_numpy(LABELS), both(SAMPLES[:30]), sets)
    assert list(results) == list(SCORES)
    for name, places in results.items():
        scores = found(name)
        assert places["near"]["auroc"] == pytest.approx(auroc(scores[:30], scores[30:60]), abs=5e-3)
    with pytest.raises(ValueError, match="did you mean 'energy'"):
        separations(both(TRAIN), torch.from_numpy(LABELS), sets["far"], sets, ["enrgy"])


def test_one_class_and_features_that_do_not_vary_are_errors():
    x = torch.eye(4)[torch.arange(60) % 4].double()
    with pytest.raises(ValueError, match="of one class only"):
        SCORES["ace"].learn(x, x, torch.zeros(60).long())
    with pytest.raises(ValueError, match="do not vary within the classes, so"):
        SCORES["mahalanobis"].learn(x, x, torch.arange(60) % 4)
