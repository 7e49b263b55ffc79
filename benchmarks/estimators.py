"""LACEClassifier beside scikit-learn's linear classifiers: accuracy and times, in one run.

    python benchmarks/estimators.py --root DIR           # fashion_mnist.npz and cifar10.npz in DIR
    python benchmarks/estimators.py --sets digits,large32

Nothing is tuned, and no test sample is seen before it is scored. Linear models that need it stand
behind a StandardScaler. Times are those of `fit` and of `predict` on all test samples. Writes
results/estimators.csv (only if all sets are run). Sets:

    digits    64 pixels; the mean of five random splits, a quarter to test
    pixels    FashionMNIST, 784 pixels, 10,000 training images
    embedded  FashionMNIST, 64 features of a small network that `torchlace train` fits to 10,000
              training images in two minutes; classifiers are fitted to 20,000 others
    patches   CIFAR-10, 512 features without a network (128 random whitened patches as filters,
              their responses pooled over quarters of the image), 20,000 training images
    clutter   FashionMNIST at 14 x 14 pixels on a background of smooth random clutter (spectrum
              1/f², 1.5 times the deviation of the pixels), and skewed: 1,000 training images of
              the first class, 20 of the last; test images in the same proportions
    large32   100,000 made-up samples, 512 correlated features, 100 classes, float32: Gaussian
              classes that share one covariance, as LDA assumes
    large64   the same in float64
"""

from __future__ import annotations

import argparse
import csv
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from torchlace.cli.common import print_table
from torchlace.data import load_data
from torchlace.estimators import LACEClassifier
from torchlace.runs import load_run
from torchlace.training import Silent, TrainConfig, train

RESULTS = Path(__file__).parent / "results"
Array = np.ndarray[Any, Any]


class Split(NamedTuple):
    """What is fitted, and what is scored."""

    features: Array
    labels: Array
    test_features: Array
    test_labels: Array


def classifiers(name: str) -> dict[str, Callable[[], Any]]:
    """Everything that is compared on a set."""
    linear: dict[str, Callable[[], Any]] = {
        "logistic regression": lambda: scaled(LogisticRegression(max_iter=1000)),
        "LDA": LinearDiscriminantAnalysis,
        "LDA, shrunk": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "nearest centroid": lambda: scaled(NearestCentroid()),
        "LACE": lambda: LACEClassifier(random_state=0),
    }
    if name.startswith("large"):
        return linear
    more: dict[str, Callable[[], Any]] = {
        # Its default solver takes minutes on the larger sets.
        "linear SVM": lambda: scaled(LinearSVC(dual=True, max_iter=100, random_state=0)),
        "LACE, no intercept": lambda: LACEClassifier(fit_intercept=False, random_state=0),
        "LACE, hidden=128": lambda: LACEClassifier(hidden=128, random_state=0),
    }
    if name == "clutter":
        balanced = {"class_weight": "balanced"}
        more["logistic regression, balanced"] = lambda: scaled(
            LogisticRegression(max_iter=1000, **balanced)
        )
        more["LACE, balanced"] = lambda: LACEClassifier(random_state=0, **balanced)
        # The fourth root of one over the class sizes: chosen on held-out training samples.
        mild = {label: 50 ** (label / 36) for label in range(10)}
        more["LACE, mild weights"] = lambda: LACEClassifier(random_state=0, class_weight=mild)
    return linear | more


def scaled(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def digits() -> Iterator[Split]:
    X, y = load_digits(return_X_y=True)
    for seed in range(5):
        parts = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
        yield Split(parts[0], parts[2], parts[1], parts[3])


def pixels(root: Path) -> Iterator[Split]:
    data = load_data("fashion_mnist", root)
    some = shuffled(data)[:10_000]
    yield split(data, some, lambda images: images.flatten(1).float() / 255)


def embedded(root: Path) -> Iterator[Split]:
    data = load_data("fashion_mnist", root)
    order = shuffled(data)
    with tempfile.TemporaryDirectory() as folder:
        own, others = order[:10_000], order[10_000:30_000]
        # The last hundred are no test of anything: a pack needs some, and these are not used again.
        pack = {"x_train": own, "x_test": order[-100:]}
        arrays = {name: data.train.images[rows, 0].numpy() for name, rows in pack.items()}
        labels = {f"y{n[1:]}": data.train.labels[rows].numpy() for n, rows in pack.items()}
        np.savez(f"{folder}/part.npz", **arrays, **labels)
        settings = {"backbone": "small-cnn", "head": "softmax", "epochs": 15, "batch_size": 128}
        schedule = {"lr": 0.01, "schedule": "one-cycle", "device": "cpu"}
        config = TrainConfig(data=f"{folder}/part.npz", **settings, **schedule)
        train(config, f"{folder}/run", reporter=Silent())
        run = load_run(Path(folder, "run"), "cpu")
    yield split(data, others, lambda images: run.model.embed(run.prepare(images)))


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


def shuffled(data: Any) -> Tensor:
    return torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))


def split(data: Any, rows: Tensor, features: Callable[[Tensor], Tensor]) -> Split:
    """Features of some training images, and of all test images."""

    def of(images: Tensor) -> Array:
        with torch.inference_mode():
            return torch.cat([features(part) for part in images.split(500)]).numpy()

    return Split(
        of(data.train.images[rows]),
        data.train.labels[rows].numpy(),
        of(data.test.images),
        data.test.labels.numpy(),
    )


def measure(make: Callable[[], Any], parts: Split) -> dict[str, float]:
    model = make()
    start = time.perf_counter()
    model.fit(parts.features, parts.labels)
    fitted = time.perf_counter()
    predicted = model.predict(parts.test_features)
    done = time.perf_counter()
    row = {
        "accuracy": 100 * accuracy_score(parts.test_labels, predicted),
        "balanced_accuracy": 100 * balanced_accuracy_score(parts.test_labels, predicted),
        "fit_s": fitted - start,
        "predict_s": done - fitted,
    }
    if hasattr(model, "predict_proba"):
        row["nll"] = log_loss(parts.test_labels, model.predict_proba(parts.test_features))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="where the packs of images lie")
    parser.add_argument("--sets", help="of those named above, separated by commas; all by default")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    warnings.filterwarnings("ignore", message="self.within_class_std_dev_")
    warnings.filterwarnings("ignore", message="Variables are collinear")
    sets: dict[str, Callable[[], Iterator[Split]]] = {
        "digits": digits,
        "pixels": lambda: pixels(args.root),
        "embedded": lambda: embedded(args.root),
        "patches": lambda: patches(args.root),
        "clutter": lambda: clutter(args.root),
        "large32": lambda: large(np.float32),
        "large64": lambda: large(np.float64),
    }
    rows: list[dict[str, Any]] = []
    for name in args.sets.split(",") if args.sets else sets:
        splits = list(sets[name]())
        samples, width = splits[0].features.shape
        for title, make in classifiers(name).items():
            found = [measure(make, parts) for parts in splits]
            means = {key: float(np.mean([row[key] for row in found])) for key in found[0]}
            shape = {"samples": samples, "features": width}
            rows.append({"set": name, **shape, "classifier": title, **means})
            print(name, title, {key: round(value, 3) for key, value in means.items()}, flush=True)
    columns = ["set", "samples", "features", "classifier", "accuracy", "balanced_accuracy", "nll"]
    columns += ["fit_s", "predict_s"]
    digits_of = {"accuracy": 2, "balanced_accuracy": 2, "nll": 4, "fit_s": 2, "predict_s": 3}
    table = [
        [f"{row[c]:.{digits_of[c]}f}" if c in digits_of and c in row else str(row.get(c, ""))
         for c in columns]
        for row in rows
    ]  # fmt: skip
    print_table("classifiers of features", columns, table)
    if not args.sets:
        RESULTS.mkdir(exist_ok=True)
        with (RESULTS / "estimators.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([columns, *table])


if __name__ == "__main__":
    main()
