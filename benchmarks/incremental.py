"""Classes that arrive later, without stored images: average and last accuracy.

    python benchmarks/incremental.py --data cifar100.npz --device cuda [--order 1993] [--base 50]

A network is trained on the first classes alone, by `torchlace train`; then it stays as it is, and
classifiers of its features learn the others, some classes at a time. After each part they are
tested on the test images of all classes so far: the average is over these accuracies, that of the
first classes included. The order is `numpy.random.RandomState(order).permutation`, that of 1993 the
one which the field uses. From 50 classes of 100 on 5 × 10 and 10 × 5 come, from 40 on 20 × 3, and
else five parts of equal size. Prints and appends a line of JSON to --out.

What learns: LACEClassifier.partial_fit, the same on 2,000 random ReLU features, nearest means,
shrunk LDA (which sees the samples of all classes again), and the published rules of
benchmarks/rules.py; "square roots" are those of the features, as FeCAM takes them, where none is
below zero. The same for features that are there already:

    python benchmarks/incremental.py --features FILE.npz --base 50

with `features`, `labels`, `test_features` and `test_labels`, the first classes numbered first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from features import Array, Split, embed, trained
from rules import FeCAM, KubokawaSrivastava, NearestMean, RanPAC
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from torchlace.data import Images, MemoryImages, load_data
from torchlace.estimators import LACEClassifier
from torchlace.runs.recipes import read_recipe

RESULTS = Path(__file__).parent / "results" / "incremental.jsonl"
SIZES = {(100, 50): (10, 5), (100, 40): (3,)}


class ShrunkLDA:
    """Shrunk LDA of all samples so far."""

    def __init__(self) -> None:
        self.seen: list[tuple[Array, Array]] = []

    def partial_fit(self, X: Array, y: Array) -> None:
        """Fit anew, to these samples too."""
        self.seen.append((X, y))
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        self.model = model.fit(*(np.concatenate(part) for part in zip(*self.seen, strict=True)))

    def predict(self, X: Array) -> Array:
        """The label of each sample."""
        found: Array = self.model.predict(X)
        return found


class RandomFeatures:
    """LACE on random ReLU features, as RanPAC takes them."""

    def __init__(self, device: str, projections: int) -> None:
        self.model, self.projections = LACEClassifier(device=device), projections

    def partial_fit(self, X: Array, y: Array) -> None:
        """Learn from more samples."""
        self.model.partial_fit(self._lifted(X), y)

    def predict(self, X: Array) -> Array:
        """The label of each sample."""
        return self.model.predict(self._lifted(X))

    def _lifted(self, X: Array) -> Array:
        rng = np.random.default_rng(0)
        return np.maximum(X @ rng.standard_normal((X.shape[1], self.projections)), 0)


def learners(device: str, projections: int) -> dict[str, Callable[[], Any]]:
    return {
        "LACE": lambda: LACEClassifier(device=device),
        # Its eigenvectors cost d³, so it gets fewer of them.
        "LACE, random features": lambda: RandomFeatures(device, min(projections, 2000)),
        "nearest mean": lambda: NearestMean(device),
        "LDA, shrunk": ShrunkLDA,
        "Kubokawa-Srivastava": lambda: KubokawaSrivastava(device),
        "FeCAM": lambda: FeCAM(device),
        "RanPAC": lambda: RanPAC(device, projections),
    }


def parts(classes: int, base: int, size: int) -> Iterator[tuple[int, int]]:
    """The first and the last class of each part, the last not included."""
    yield 0, base
    for start in range(base, classes, size):
        yield start, min(start + size, classes)


def accuracies(make: Callable[[], Any], given: Split, base: int, size: int) -> list[float]:
    """In percent, after each part."""
    model, found = make(), []
    for start, end in parts(int(given.labels.max()) + 1, base, size):
        new = (given.labels >= start) & (given.labels < end)
        model.partial_fit(given.features[new], given.labels[new])
        seen = given.test_labels < end
        right = model.predict(given.test_features[seen]) == given.test_labels[seen]
        found.append(100 * float(right.mean()))
    return found


def compare(given: Split, base: int, device: str, projections: int) -> dict[str, Any]:
    """Average and last accuracy of every learner, for each way to divide the other classes."""
    classes = int(given.labels.max()) + 1
    rooted = None
    if min(given.features.min(), given.test_features.min()) >= 0:
        roots = np.sqrt(given.features), np.sqrt(given.test_features)
        rooted = given._replace(features=roots[0], test_features=roots[1])
    found: dict[str, Any] = {}
    for size in SIZES.get((classes, base), (max((classes - base) // 5, 1),)):
        rows = {}
        for name, make in learners(device, projections).items():
            rows[name] = outcome(make, given, base, size)
            if rooted is not None and name in ("LACE", "Kubokawa-Srivastava"):
                rows[f"{name}, square roots"] = outcome(make, rooted, base, size)
        found[f"{base} + {-(-(classes - base) // size)} x {size}"] = rows
    return found


def outcome(make: Callable[[], Any], given: Split, base: int, size: int) -> dict[str, Any]:
    start = time.perf_counter()
    found = accuracies(make, given, base, size)
    return {
        "average": round(float(np.mean(found)), 2),
        "last": round(found[-1], 2),
        "each": [round(value, 2) for value in found],
        "seconds": round(time.perf_counter() - start, 2),
    }


def network_features(args: argparse.Namespace) -> Split:
    """Features of all classes, numbered in their order, by a network of the first of them."""
    data = load_data(args.data)
    order = np.random.RandomState(args.order).permutation(data.num_classes)
    place = torch.from_numpy(np.argsort(order))
    train, test = (numbered(part, place, args.images) for part in (data.train, data.test))
    own = [torch.where(part.labels < args.base)[0] for part in (train, test)]
    settings = read_recipe(args.recipe) | {"backbone": args.backbone, "head": args.head}
    for name in ("epochs", "batch_size", "lr"):
        given = getattr(args, name)
        settings |= {} if given is None else {name: given}
    settings |= {"patience": settings["epochs"], "seed": args.order, "device": args.device}
    with tempfile.TemporaryDirectory() as folder:
        run = trained((train, own[0]), (test, own[1]), Path(folder), **settings)
        found = embed(run, train), embed(run, test)
    return Split(found[0], train.labels.numpy(), found[1], test.labels.numpy())


def numbered(images: Images, place: torch.Tensor, most: int | None) -> MemoryImages:
    """The images, or the first so many of each class, with the numbers of their classes."""
    labels = place[images.labels]
    rows = torch.arange(len(labels))
    if most is not None:
        rows = torch.cat([torch.where(labels == c)[0][:most] for c in range(len(place))])
    return MemoryImages(images.batch(rows), labels[rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", help="a pack of images, or the name of a data set")
    parser.add_argument("--features", type=Path, help="features instead, see above")
    parser.add_argument("--base", type=int, default=50, help="classes to train the network on")
    parser.add_argument("--order", type=int, default=1993, help="seed of the order of classes")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--head", default="softmax", help="that the network is trained with")
    parser.add_argument("--recipe", default="strong", help="of torchlace train")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--batch-size", type=int, help="likewise")
    parser.add_argument("--lr", type=float, help="likewise")
    parser.add_argument("--images", type=int, help="of each class; all by default")
    parser.add_argument("--projections", type=int, default=10_000, help="of RanPAC")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--keep", type=Path, help="a file for the features")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="Variables are collinear")
    start = time.perf_counter()
    if args.features:
        with np.load(args.features) as file:
            given = Split(*(file[name] for name in Split._fields))
    else:
        given = network_features(args)
    line = {name: getattr(args, name) for name in ("base", "order", "projections")}
    if not args.features:
        names = ("backbone", "head", "recipe", "epochs", "batch_size", "lr", "images")
        line |= {"data": Path(args.data).stem, **{name: getattr(args, name) for name in names}}
        line["trained_s"] = round(time.perf_counter() - start, 1)
    if args.keep:
        np.savez(args.keep, **given._asdict())
    line["results"] = compare(given, args.base, args.device, args.projections)
    text = json.dumps(line)
    print(text)
    with args.out.open("a") as file:
        file.write(text + "\n")


if __name__ == "__main__":
    main()
