"""Classifiers of features from 1, 2, 4, 8 and 16 samples a class: accuracy and mean rank.

    python benchmarks/few_samples.py --root DIR [--cache DIR] [--draws 50]

Features of the small networks of benchmarks/estimators.py: all ten classes of FashionMNIST, twenty
of CIFAR-100 that each draw chooses; samples are drawn from training images that the networks have
not seen, and scored are 2,000 test images. Logistic regression has its penalty cross-validated
(seven, up to five folds); from one sample a class, where nothing can be held out, it is that of
scikit-learn. LDA needs two. The published rules are those of torchlace.experiments.rules, RanPAC
with 2,000 projections. Ranks are by accuracy, within each draw, of all but "LACE, closed"; log loss
is that of those with probabilities. Writes results/few-samples.csv.
"""

from __future__ import annotations

import argparse
import csv
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from features import Array, Split, embedded
from scipy.stats import rankdata
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from torchlace.cli.common import print_table
from torchlace.estimators import LACEClassifier
from torchlace.experiments.rules import FeCAM, KubokawaSrivastava, NearestMean, RanPAC

RESULTS = Path(__file__).parent / "results" / "few-samples.csv"
NUMBERS = (1, 2, 4, 8, 16)


def models(number: int) -> dict[str, Callable[[Array, Array], Any]]:
    """What is fitted to so many samples a class."""

    def logistic(X: Array, y: Array) -> Any:
        model: Any = LogisticRegression(max_iter=1000)
        if number > 1:
            penalties = {"Cs": np.logspace(-3, 3, 7), "cv": min(number, 5)}
            model = LogisticRegressionCV(max_iter=300, scoring="neg_log_loss", **penalties)
        return make_pipeline(StandardScaler(), model).fit(X, y)

    found: dict[str, Callable[[Array, Array], Any]] = {
        "LACE": LACEClassifier(random_state=0).fit,
        "LACE, closed": LACEClassifier(refine=False, random_state=0).fit,
        "logistic regression": logistic,
        "nearest mean": NearestMean().partial_fit,
        "Kubokawa-Srivastava": KubokawaSrivastava().partial_fit,
        "FeCAM": FeCAM().partial_fit,
        "RanPAC": RanPAC(projections=2000).partial_fit,
    }
    if number > 1:
        found["LDA, shrunk"] = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit
    return found


def draw(whole: Split, classes: int, number: int, seed: int) -> Split:
    """So many samples of each of some classes, and 2,000 test samples of these."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.unique(whole.labels))[:classes]
    rows = [rng.choice(np.flatnonzero(whole.labels == c), number, replace=False) for c in chosen]
    own = np.flatnonzero(np.isin(whole.test_labels, chosen))
    train, test = np.concatenate(rows), rng.choice(own, 2000, replace=False)
    return Split(
        whole.features[train], whole.labels[train], whole.test_features[test],
        whole.test_labels[test],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", type=Path, help="where the packs of images lie")
    parser.add_argument("--cache", type=Path, help="where features of networks are kept; root")
    parser.add_argument("--draws", type=int, default=50)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    table = []
    for name, classes in (("fashion_mnist", 10), ("cifar100", 20)):
        whole = embedded(name, args.root, args.cache or args.root)
        for number in NUMBERS:
            names = list(models(number))
            accuracies, losses = np.zeros((2, args.draws, len(names)))
            for seed in range(args.draws):
                part = draw(whole, classes, number, seed)
                for place, fit in enumerate(models(number).values()):
                    model = fit(part.features, part.labels)
                    right = model.predict(part.test_features) == part.test_labels
                    accuracies[seed, place] = 100 * right.mean()
                    losses[seed, place] = math.nan
                    if hasattr(model, "predict_proba"):
                        given = model.predict_proba(part.test_features)
                        losses[seed, place] = log_loss(part.test_labels, given)
            rivals = [place for place, title in enumerate(names) if title != "LACE, closed"]
            ranks = np.full(len(names), np.nan)
            ranks[rivals] = rankdata(-accuracies[:, rivals], axis=1).mean(0)
            half = 1.96 * (accuracies - accuracies[:, :1]).std(0, ddof=1) / math.sqrt(args.draws)
            for place in np.argsort(ranks):
                loss = losses[:, place].mean()
                table.append([
                    name, str(number), names[place], _shown(ranks[place], 2),
                    f"{accuracies[:, place].mean():.2f}", f"{half[place]:.2f}",
                    _shown(loss, 3),
                ])  # fmt: skip
                print(*table[-1], flush=True)
    columns = ["set", "samples a class", "classifier", "mean rank", "accuracy", "± to LACE"]
    columns.append("log loss")
    print_table("few samples", columns, table)
    with RESULTS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *table])


def _shown(value: float, places: int) -> str:
    return "" if math.isnan(value) else f"{value:.{places}f}"


if __name__ == "__main__":
    main()
