"""Classes that come after training: how well a network's features tell them, without old images."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from torchlace._sklearn import Array
from torchlace.data import Images, first_classes, load_data
from torchlace.data.first import take_first
from torchlace.estimators import LACEClassifier
from torchlace.evaluation.kept import predictions
from torchlace.experiments.rules import FeCAM, KubokawaSrivastava, NearestMean, RanPAC
from torchlace.runs import LoadedRun, Run, load_run


class Features(NamedTuple):
    """Features of all classes, numbered in the order in which they come."""

    train: Array
    labels: Array
    test: Array
    test_labels: Array


class ShrunkLDA:
    """Linear discriminant analysis with the covariance of Ledoit and Wolf, of all samples so far.

    Unlike the others it keeps the samples, and is fitted anew each time.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Array, Array]] = []

    def partial_fit(self, X: Array, y: Array) -> ShrunkLDA:
        """Learn these samples too."""
        self.seen.append((X, y))
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        self.model = model.fit(*(np.concatenate(part) for part in zip(*self.seen, strict=True)))
        return self

    def predict(self, X: Array) -> Array:
        """The label of each sample."""
        found: Array = self.model.predict(X)
        return found


class Learner(NamedTuple):
    """What is fitted to a part at a time, and what is made of the features before."""

    make: Callable[[str], Any]
    lift: Callable[[Array], Array] = np.asarray


def _rooted(X: Array) -> Array:
    return np.asarray(np.sign(X) * np.sqrt(np.abs(X)))


def _random(X: Array) -> Array:
    """2,000 random ReLU features; the eigenvectors of more would take minutes."""
    directions = np.random.default_rng(0).standard_normal((X.shape[1], 2000), dtype=np.float32)
    return np.maximum(X @ directions, 0)


LEARNERS = {
    "lace": Learner(lambda device: LACEClassifier(device=device)),
    "lace-roots": Learner(lambda device: LACEClassifier(device=device), _rooted),
    "lace-random": Learner(lambda device: LACEClassifier(device=device), _random),
    "nearest-mean": Learner(NearestMean),
    "lda": Learner(lambda _: ShrunkLDA()),
    "kubokawa-srivastava": Learner(KubokawaSrivastava),
    "kubokawa-srivastava-roots": Learner(KubokawaSrivastava, _rooted),
    "fecam": Learner(FeCAM),
    "ranpac": Learner(RanPAC),
}
MEASURES = ("average", "last")


def later_scores(
    run: Run, wanted: Iterable[str], *, device: str = "auto", root: Path | None = None
) -> dict[str, Any]:
    """How learners do when the classes that a run left out come a part at a time; kept beside it.

    The network stays as it is. After each part, and before the first, all test images of the
    classes so far are told apart: ``average`` is over these accuracies, in percent, and ``last`` is
    of all classes.

    Args:
        run: finished, of the first classes of a set (``data="cifar100:50@1993"``).
        wanted: how many classes come at a time, and who learns them: ``10.fecam``.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        root: where packs of data lie.

    Returns:
        By number and learner ``average``, ``last``, ``each`` and the ``seconds`` that it took.
    """
    loaded = load_run(run, device)
    known, given = len(loaded.facts["class_names"]), embedded(loaded, root)
    scores = run.read_json(run.later_path)["scores"] if run.later_path.exists() else {}
    for size, name in (each.split(".") for each in wanted):
        row = scores.setdefault(size, {})
        if name not in row:
            row[name] = _outcome(LEARNERS[name], given, known, int(size), loaded.device.type)
            run.write_json(run.later_path, {"scores": scores})
    return dict(scores)


def embedded(loaded: LoadedRun, root: Path | None = None) -> Features:
    """What the network of a run makes of the images of all classes."""
    some = first_classes(loaded.config.data)
    if some is None:
        raise ValueError(
            f"{loaded.config.data} has no classes that come later: train on the first of them, "
            "such as data='cifar100:50@1993'"
        )
    place = root or loaded.config.root
    whole = load_data(some.whole, place, size=tuple(loaded.facts["size"]))
    data = take_first(whole, whole.num_classes, some.order)

    def features(images: Images) -> Array:
        every = torch.arange(len(images))
        seen: Array = predictions(loaded, images, every).features.cpu().numpy()
        return seen

    labels = (part.labels.numpy() for part in (data.train, data.test))
    return Features(features(data.train), next(labels), features(data.test), next(labels))


def _parts(classes: int, known: int, size: int) -> Iterator[tuple[int, int]]:
    """The first class of each part and the one after its last."""
    yield 0, known
    for start in range(known, classes, size):
        yield start, min(start + size, classes)


def _outcome(
    learner: Learner, given: Features, known: int, size: int, device: str
) -> dict[str, Any]:
    start = time.perf_counter()
    model = learner.make(device)
    train, test = learner.lift(given.train), learner.lift(given.test)
    each = []
    for first, end in _parts(int(given.labels.max()) + 1, known, size):
        new, seen = (given.labels >= first) & (given.labels < end), given.test_labels < end
        model.partial_fit(train[new], given.labels[new])
        right = model.predict(test[seen]) == given.test_labels[seen]
        each.append(100 * float(right.mean()))
    return {
        "average": round(float(np.mean(each)), 3),
        "last": round(each[-1], 3),
        "each": [round(value, 3) for value in each],
        "seconds": round(time.perf_counter() - start, 2),
    }
