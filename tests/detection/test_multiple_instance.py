"""Signatures learned from bags: planted ones are found, and the algorithm is the published one."""

import warnings

import numpy as np
import pytest
from detection.scenes import correlated

from torchlace.detection import MIACE, MISMF, ACEDetector, SMFDetector

BANDS = 20


def planted(seed=0, bags=24, size=30, share=0.35):
    """Half of the bags hold, at one random place each, some of the target."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(BANDS, BANDS)) / BANDS**0.5
    target = 3 * rng.normal(size=BANDS)
    held = [rng.normal(size=(size + number % 5, BANDS)) @ mixing + 2 for number in range(bags)]
    labels = np.arange(bags) % 2
    places = {}
    for number in np.flatnonzero(labels):
        places[number] = rng.integers(size)
        pixel = held[number][places[number]]
        held[number][places[number]] = (1 - share) * pixel + share * (target + 2)
    return held, labels, target, np.array(list(places.values())), mixing.T @ mixing


def whitened(model, bags, labels, scaled):
    """Bags about the mean of the negatives, whitened by their covariance, in plain NumPy."""
    negatives = np.concatenate([bag for bag, label in zip(bags, labels, strict=True) if not label])
    values, vectors = np.linalg.eigh(np.cov(negatives.T))
    matrix = (vectors / np.sqrt(values)) @ vectors.T
    white = [(bag - negatives.mean(0)) @ matrix for bag in bags]
    if scaled:
        white = [bag / np.linalg.norm(bag, axis=1, keepdims=True) for bag in white]
    signature = matrix @ model.signature_
    return white, signature


def objective(white, labels, signature):
    best = [bag @ signature for bag in white]
    positive = np.mean([b.max() for b, label in zip(best, labels, strict=True) if label])
    return positive - np.mean(
        [b.mean() for b, label in zip(best, labels, strict=True) if not label]
    )


@pytest.mark.parametrize("kind", [MIACE, MISMF])
@pytest.mark.parametrize("seed", range(4))
def test_a_planted_signature_is_found(kind, seed):
    bags, labels, target, places, covariance = planted(seed)
    model = kind().fit(bags, labels)
    assert (model.instances_ == places).mean() >= 0.9
    root = np.linalg.cholesky(np.linalg.inv(covariance)).T
    learned, true = root @ model.signature_, root @ target
    similarity = learned @ true / np.linalg.norm(learned) / np.linalg.norm(true)
    assert similarity > 0.85
    # Averaging all instances of positive bags, without knowing which hold the target, is worse.
    naive = root @ (np.concatenate([bags[n] for n in np.flatnonzero(labels)]).mean(0) - 2)
    assert similarity > naive @ true / np.linalg.norm(naive) / np.linalg.norm(true)


def test_the_learned_signature_finds_the_target_in_new_pixels():
    bags, labels, target, _, _ = planted(share=0.5)
    model = MIACE(false_alarm=0.01).fit(bags, labels)
    background = np.concatenate(bags[::2])
    mixed = 0.5 * background[:100] + 0.5 * (target + 2)
    assert model.predict(mixed).mean() > 0.9
    assert model.predict(background).mean() < 0.05
    np.testing.assert_array_equal(model.decision_function(mixed) > 0, model.predict(mixed))


@pytest.mark.parametrize(("kind", "detector"), [(MIACE, ACEDetector), (MISMF, SMFDetector)])
def test_scores_are_those_of_the_detector_of_its_signature(kind, detector):
    bags, labels, *_ = planted()
    model = kind().fit(bags, labels)
    negatives = np.concatenate([bag for bag, label in zip(bags, labels, strict=True) if not label])
    same = detector(model.signature_, convention="paper").fit(negatives)
    np.testing.assert_allclose(model.score_samples(bags[1]), same.score_samples(bags[1]))
    image = bags[1][:30].reshape(5, 6, BANDS)
    assert model.score_samples(image).shape == (5, 6)


@pytest.mark.parametrize("kind", [MIACE, MISMF])
@pytest.mark.parametrize("seed", range(3))
def test_it_ends_where_instances_and_signature_agree_and_beats_every_start(kind, seed):
    bags, labels, *_ = planted(seed, share=0.15)
    model = kind().fit(bags, labels)
    white, signature = whitened(model, bags, labels, scaled=kind is MIACE)
    assert np.linalg.norm(signature) == pytest.approx(1)
    chosen = [np.argmax(white[n] @ signature) for n in np.flatnonzero(labels)]
    np.testing.assert_array_equal(model.instances_, chosen)
    positive = [white[n][i] for n, i in zip(np.flatnonzero(labels), chosen, strict=True)]
    negative = [white[n].mean(0) for n in np.flatnonzero(labels == 0)]
    update = np.mean(positive, axis=0) - np.mean(negative, axis=0)
    np.testing.assert_allclose(signature, update / np.linalg.norm(update), atol=1e-8)
    reached = objective(white, labels, signature)
    for number in np.flatnonzero(labels):
        for start in white[number]:
            assert reached >= objective(white, labels, start / np.linalg.norm(start)) - 1e-9


def test_the_start_is_searched_in_blocks(monkeypatch):
    bags, labels, *_ = planted()
    expected = MIACE().fit(bags, labels).signature_
    monkeypatch.setattr("torchlace.detection.multiple_instance._BLOCK", 1)
    np.testing.assert_allclose(MIACE().fit(bags, labels).signature_, expected)


def test_labels_of_several_kinds():
    bags, labels, *_ = planted()
    expected = MIACE().fit(bags, labels).signature_
    for kind in (labels.astype(bool), 2 * labels - 1, labels.tolist(), labels.astype(float)):
        np.testing.assert_array_equal(MIACE().fit(bags, kind).signature_, expected)


GOOD = [correlated(np.random.default_rng(n), 30, 4) for n in range(4)]


@pytest.mark.parametrize(
    ("bags", "labels", "message"),
    [
        (GOOD, [1, 1, 1, 1], "all 4 bags are positive"),
        (GOOD, [0, 0, 0, 0], "all 4 bags are negative"),
        (GOOD, [1, 0, 1], r"bag_labels must have shape \(4,\)"),
        (GOOD, [1, 0, 2, 0], "must be 1 .* or 0 or -1"),
        ([], [], "there are no bags"),
        ([*GOOD[:3], GOOD[3][:, :3]], [1, 0, 1, 0], r"bag 3 must have shape \(N, 4\)"),
        ([*GOOD[:3], GOOD[3][:0]], [1, 0, 1, 0], r"bag 3 must have shape \(N, 4\) with N at"),
        ([*GOOD[:3], GOOD[3] * np.nan], [1, 0, 1, 0], "30 of 30 pixels of bag 3"),
        ([b[:2] for b in GOOD], [1, 0, 1, 0], "4 background pixels in 4 bands"),
    ],
)
def test_bad_bags_are_errors(bags, labels, message):
    with pytest.raises(ValueError, match=message):
        MIACE().fit(bags, labels)


def test_bad_options_are_errors():
    with pytest.raises(ValueError, match="did you mean 'sample'"):
        MIACE(covariance="samples").fit(GOOD, [1, 0, 1, 0])
    with pytest.raises(ValueError, match="max_iter must be at least 1"):
        MIACE(max_iter=0).fit(GOOD, [1, 0, 1, 0])


def test_frames_are_bags_without_a_warning():
    frames = pytest.importorskip("pandas").DataFrame
    rng = np.random.default_rng(0)
    bags, labels = [rng.normal(size=(20, 6)) for _ in range(6)], [1, 1, 1, 0, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = MIACE().fit([frames(bag) for bag in bags], labels)
    np.testing.assert_array_equal(found.signature_, MIACE().fit(bags, labels).signature_)
