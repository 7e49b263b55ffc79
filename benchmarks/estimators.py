"""LACEClassifier beside scikit-learn's classifiers: accuracy, log loss and times, in one run.

    python benchmarks/estimators.py --root DIR [--cache DIR]

DIR has fashion_mnist.npz, cifar10.npz and cifar100.npz; features of networks are kept in the cache.
Nothing is tuned, and no test sample is seen before it is scored. Models that need it stand behind a
StandardScaler. Times are those of `fit` and of `predict` on all test samples. Ranks are of all
classifiers but "LACE, closed" and "LACE, hidden"; one that fails comes last. Writes
results/estimators.csv (only if all sets are run). Sets:

    digits, wine, breast_cancer, iris
              the mean of 20 random splits (digits of five), a quarter to test
    pines     pixels of Indian Pines in 200 bands, 16 classes of 20 to 2,455; the mean of
              five random splits, a tenth to fit (`pip install "tensorly>=0.10"`)
    fashion_mnist, cifar100
              64 features of a small network that `torchlace train` fits to 10,000 and 25,000
              training images; classifiers are fitted to 20,000 others
    patches   CIFAR-10, 512 features without a network (128 random whitened patches as filters,
              their responses pooled over quarters of the image), 20,000 training images
    pixels    FashionMNIST, 784 pixels, 10,000 training images
    clutter   FashionMNIST at 14 x 14 pixels on a background of smooth random clutter (spectrum
              1/f², 1.5 times the deviation of the pixels), and skewed: 1,000 training images of
              the first class, 20 of the last; test images in the same proportions
    large32   100,000 made-up samples, 512 correlated features, 100 classes, float32: Gaussian
              classes that share one covariance, as LDA assumes; not ranked
    large64   the same in float64
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from features import Array, Split, embedded, shuffled, spectra, split, splits
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from torchlace.cli.common import print_table
from torchlace.data import load_data
from torchlace.estimators import LACEClassifier

RESULTS = Path(__file__).parent / "results"
SMALL = {"wine": load_wine, "breast_cancer": load_breast_cancer, "iris": load_iris}
UNRANKED = ("LACE, closed", "LACE, hidden")


def classifiers(name: str) -> dict[str, Callable[[], Any]]:
    """Everything that is compared on a set."""
    found: dict[str, Callable[[], Any]] = {
        "LACE": lambda: LACEClassifier(random_state=0),
        "LACE, closed": lambda: LACEClassifier(refine=False, random_state=0),
        "LDA": LinearDiscriminantAnalysis,
        "LDA, shrunk": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "logistic regression": lambda: scaled(LogisticRegression(max_iter=1000)),
    }
    if name.startswith("large"):
        return found
    return found | {
        "QDA, shrunk": lambda: scaled(
            QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")
        ),
        # Its default solver takes minutes on the larger sets.
        "linear SVM": lambda: scaled(LinearSVC(dual=True, max_iter=100, random_state=0)),
        "nearest neighbours": lambda: scaled(KNeighborsClassifier()),
        "LACE, hidden": lambda: LACEClassifier(hidden=128, random_state=0),
    }


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def pixels(root: Path) -> Iterator[Split]:
    data = load_data("fashion_mnist", root)
    some = shuffled(data)[:10_000]
    yield split(data, some, lambda images: images.flatten(1).float() / 255)


def patches(root: Path) -> Iterator[Split]:
    data = load_data("cifar10", root)
    some = shuffled(data)[:20_000]
    filters, offset = patch_filters(data.train.images[some[:1000]].float(), 128)

    def features(images: Tensor) -> Tensor:
        images = images.float()
        mean = F.avg_pool2d(images, 6, 1).mean(1, keepdim=True)
        square = F.avg_pool2d(images.square(), 6, 1).mean(1, keepdim=True)
        deviation = (square - mean.square()).clamp_min(0).sqrt() + 10
        found = F.conv2d(images, filters) - mean * filters.sum((1, 2, 3))[:, None, None]
        found = found / deviation - offset[:, None, None]
        return F.adaptive_avg_pool2d(F.relu(found - 0.25), 2).flatten(1)

    yield split(data, some, features)


def patch_filters(images: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Random patches of 6 × 6 pixels, their contrast normalised, whitened; and their mean's."""
    generator = torch.Generator().manual_seed(0)
    every = F.unfold(images, 6).mT.reshape(-1, 108)
    some = every[torch.randperm(len(every), generator=generator)[:20_000]]
    some = (some - some.mean(1, keepdim=True)) / (some.std(1, keepdim=True) + 10)
    values, vectors = torch.linalg.eigh(some.T.cov())
    whitening = (vectors * (values + 0.1).rsqrt()) @ vectors.mT
    chosen = F.normalize((some[:number] - some.mean(0)) @ whitening) @ whitening
    return chosen.view(-1, 3, 6, 6), chosen @ some.mean(0)


def clutter(root: Path) -> Iterator[Split]:
    data = load_data("fashion_mnist", root)
    rng = np.random.default_rng(0)
    level = 1.5 * float(F.avg_pool2d(data.train.images.float() / 255, 2).std())

    def features(images: Tensor) -> Tensor:
        small = F.avg_pool2d(images.float() / 255, 2).flatten(1)
        return small + level * torch.from_numpy(fields(rng, len(small))).float()

    order = shuffled(data)
    some = skewed(order, data.train.labels)
    kept = skewed(torch.arange(len(data.test)), data.test.labels)
    whole = split(data, some, features)
    yield whole._replace(
        test_features=whole.test_features[kept], test_labels=whole.test_labels[kept]
    )


def fields(rng: np.random.Generator, number: int) -> Array:
    """Random images of 14 × 14 pixels whose amplitudes fall with the square of the frequency."""
    line = np.fft.fftfreq(14)
    frequency = np.hypot(line[:, None], line)
    frequency[0, 0] = 1 / 14
    noise = np.fft.fft2(rng.standard_normal((number, 14, 14)))
    found = np.fft.ifft2(noise / frequency**2).real
    return (found / found.std()).reshape(number, -1)


def skewed(order: Tensor, labels: Tensor) -> Tensor:
    """1,000 samples of class 0 and fewer of each next one, 20 of class 9."""
    mine = labels[order]
    return torch.cat([order[mine == c][: round(1000 * 50 ** (-c / 9))] for c in range(10)])


def large(dtype: type) -> Iterator[Split]:
    rng = np.random.default_rng(0)
    labels = rng.integers(100, size=110_000)
    mixing = rng.standard_normal((512, 512)) / math.sqrt(512) + 0.3 * np.eye(512)
    noise = rng.standard_normal((110_000, 512))
    noise += 0.12 * rng.standard_normal((100, 512))[labels]
    X = (noise @ mixing).astype(dtype)
    yield Split(X[:100_000], labels[:100_000], X[100_000:], labels[100_000:])


def measure(make: Callable[[], Any], parts: Split) -> dict[str, float]:
    model = make()
    start = time.perf_counter()
    try:
        model.fit(parts.features, parts.labels)
    except np.linalg.LinAlgError:  # a class of too few samples for QDA
        return {
            "accuracy": math.nan,
            "log_loss": math.nan,
            "fit_s": math.nan,
            "predict_s": math.nan,
        }
    fitted = time.perf_counter()
    predicted = model.predict(parts.test_features)
    done = time.perf_counter()
    loss = math.nan
    if hasattr(model, "predict_proba"):
        loss = log_loss(parts.test_labels, model.predict_proba(parts.test_features))
    accuracy = 100 * accuracy_score(parts.test_labels, predicted)
    return {
        "accuracy": accuracy,
        "log_loss": loss,
        "fit_s": fitted - start,
        "predict_s": done - fitted,
    }


def mean_ranks(rows: list[dict[str, Any]], column: str, best: float) -> dict[str, float]:
    """The mean over the sets of each classifier's place by a column; the smaller, the better."""
    ranked = [
        row
        for row in rows
        if row["classifier"] not in UNRANKED and not row["set"].startswith("large")
    ]
    ranks: dict[str, list[int]] = {}
    for name in {row["set"] for row in ranked}:
        values = {r["classifier"]: best * r[column] for r in ranked if r["set"] == name}
        for title, value in values.items():
            worse = math.isnan(value)
            place = 1 + sum(
                other < value or (worse and not math.isnan(other)) for other in values.values()
            )
            ranks.setdefault(title, []).append(place)
    return {title: float(np.mean(places)) for title, places in ranks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="where the packs of images lie")
    parser.add_argument("--cache", type=Path, help="where features of networks are kept; root")
    parser.add_argument("--sets", help="of those named above, separated by commas; all by default")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")  # of what has not converged, or is collinear
    cache = args.cache or args.root
    sets: dict[str, Callable[[], Iterable[Split]]] = {
        "digits": lambda: splits(*load_digits(return_X_y=True), 5),
        **{n: lambda load=load: splits(*load(return_X_y=True), 20) for n, load in SMALL.items()},
        "pines": lambda: splits(*spectra(), 5, test=0.9),
        "fashion_mnist": lambda: [embedded("fashion_mnist", args.root, cache)],
        "cifar100": lambda: [embedded("cifar100", args.root, cache)],
        "patches": lambda: patches(args.root),
        "pixels": lambda: pixels(args.root),
        "clutter": lambda: clutter(args.root),
        "large32": lambda: large(np.float32),
        "large64": lambda: large(np.float64),
    }
    rows: list[dict[str, Any]] = []
    for name in args.sets.split(",") if args.sets else sets:
        parts = list(sets[name]())
        samples, width = parts[0].features.shape
        for title, make in classifiers(name).items():
            found = [measure(make, part) for part in parts]
            means = {key: float(np.mean([row[key] for row in found])) for key in found[0]}
            shape = {"samples": samples, "features": width}
            rows.append({"set": name, **shape, "classifier": title, **means})
            print(name, title, {key: round(value, 4) for key, value in means.items()}, flush=True)
    columns = ["set", "samples", "features", "classifier", "accuracy", "log_loss"]
    columns += ["fit_s", "predict_s"]
    digits_of = {"accuracy": 2, "log_loss": 4, "fit_s": 4, "predict_s": 4}
    table = [
        [shown(row[c], digits_of[c]) if c in digits_of else str(row[c]) for c in columns]
        for row in rows
    ]
    print_table("classifiers of features", columns, table)
    for column, best in (("accuracy", -1), ("log_loss", 1)):
        ranks = sorted(mean_ranks(rows, column, best).items(), key=lambda pair: pair[1])
        print(f"mean rank by {column}:", ", ".join(f"{n} {rank:.2f}" for n, rank in ranks))
    if not args.sets:
        with (RESULTS / "estimators.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *table])


def shown(value: float, places: int) -> str:
    return "" if math.isnan(value) else f"{value:.{places}f}"


if __name__ == "__main__":
    main()
