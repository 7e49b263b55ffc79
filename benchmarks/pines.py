"""Indian Pines, a real scene: rare classes found from five labelled pixels, and all told apart.

    python benchmarks/pines.py --detect       # docs/images/pines.png, results/pines-detection.csv
    python benchmarks/pines.py --classify     # results/pines-classification.csv
    python benchmarks/pines.py --planted      # why targets in the background lower the alarm rate

AVIRIS, 1992, 145 × 145 pixels of 200 bands, 10,249 of them labelled (Baumgardner, Biehl, Landgrebe,
doi:10.4231/R7RX991C, CC BY 3.0), from the package tensorly.

Detection: five pixels of a class, drawn at random 20 times, are its labels. ACE and the matched
filter look for their mean; MI-ACE learns from bags, the 3 × 3 pixels around each, as of coordinates
that are a pixel off; RX takes no target. The background is the whole image, targets included.
Detections are counted among the other pixels of the class, false alarms among labelled pixels of
all other classes. Promised rates are by theory, for pixels of the background itself.

Classification: a tenth of each class to learn from, the rest to test, ten times.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from detection import show
from scipy import stats

from torchlace.detection import MIACE, ACEDetector, RXDetector, SMFDetector, auroc

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "pines.png"
NAMES = """nobody knows
Alfalfa
Corn-notill
Corn-mintill
Corn
Grass-pasture
Grass-trees
Grass-pasture-mowed
Hay-windrowed
Oats
Soybean-notill
Soybean-mintill
Soybean-clean
Wheat
Woods
Buildings-grass-trees-drives
Stone-steel-towers""".splitlines()
RARE = (9, 7, 1, 16)
LABELLED, DRAWS = 5, 20
RATES = np.logspace(-4, -1, 13)
COLOURS = {"ACE": "C0", "matched filter": "C1", "MI-ACE": "C2", "RX": "C7"}


def load() -> tuple[Any, Any]:
    """The image, (145, 145, 200), and its classes, 0 where nobody knows."""
    from tensorly.datasets import load_indian_pines

    found = load_indian_pines()
    return found["tensor"], np.asarray(found["ticks"][0])


def draw_bags(chosen: Any, shape: tuple[int, int]) -> list[tuple[Any, Any]]:
    """The places of the 3 × 3 pixels around each of the chosen ones, at the border moved inside."""
    bags = []
    for row, column in chosen:
        top, left = (min(max(v - 1, 0), n - 3) for v, n in zip((row, column), shape, strict=True))
        bags.append(np.mgrid[top : top + 3, left : left + 3].reshape(2, -1))
    return [tuple(bag) for bag in bags]


def search(image: Any, chosen: Any) -> dict[str, tuple[Any, Any]]:
    """Scores of every detector, and the detectors that say what their thresholds are."""
    spectrum = image[tuple(chosen.T)].mean(0)
    found: dict[str, tuple[Any, Any]] = {}
    for name, detector in (
        ("ACE", ACEDetector(spectrum)),
        ("matched filter", SMFDetector(spectrum)),
        ("RX", RXDetector()),
    ):
        found[name] = (detector.fit(image).score_samples(image), detector)
    bags = draw_bags(chosen, image.shape[:2])
    rest = np.ones(image.shape[:2], dtype=bool)
    for bag in bags:
        rest[bag] = False
    learned = MIACE().fit([*(image[bag] for bag in bags), image[rest]], [1] * len(bags) + [0])
    found["MI-ACE"] = (learned.score_samples(image), learned.detector_)
    return found


def judge(scores: Any, detector: Any, own: Any, others: Any) -> dict[str, Any]:
    """AUROC, and detections and false alarms at each of the promised and of the realised rates."""
    limits = [detector.set_params(false_alarm=rate).fitted_threshold_ for rate in RATES]
    background = np.sort(scores[others])
    realised = [(background > limit).mean() for limit in limits]
    ranks = np.ceil((1 - RATES) * len(background)).astype(int) - 1
    return {
        "auroc": auroc(scores[own], background),
        "realised": np.array(realised),
        "promised found": np.array([(scores[own] > limit).mean() for limit in limits]),
        "found": np.array([(scores[own] > limit).mean() for limit in background[ranks]]),
    }


def without(image: Any, chosen: Any, classes: Any, label: int) -> tuple[float, Any]:
    """ACE's false-alarm rate with a background that lacks the class, and its alarms by class."""
    detector = ACEDetector(image[tuple(chosen.T)].mean(0)).fit(image[classes != label])
    above = detector.score_samples(image) > detector.fitted_threshold_
    others = (classes > 0) & (classes != label)
    return above[others].mean(), np.bincount(classes[above & others], minlength=len(NAMES))


def detect() -> None:
    """Rare classes, found from five pixels."""
    image, classes = load()
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    judged: dict[tuple[int, str], list[Any]] = {}
    alone: dict[int, list[Any]] = {}
    maps = {}
    for label in RARE:
        places = np.argwhere(classes == label)
        others = (classes > 0) & (classes != label)
        for draw in range(DRAWS):
            chosen = places[rng.choice(len(places), LABELLED, replace=False)]
            own = classes == label
            own[tuple(chosen.T)] = False
            found = search(image, chosen)
            if not draw:
                maps[label] = found["ACE"][0], chosen
            for method, (scores, detector) in found.items():
                each = judge(scores, detector, own, others)
                judged.setdefault((label, method), []).append(each)
            alone.setdefault(label, []).append(without(image, chosen, classes, label))
        for method in COLOURS:
            runs = judged[label, method]
            middle = {key: np.median([run[key] for run in runs], axis=0) for key in runs[0]}
            rows.append(
                {
                    "class": NAMES[label],
                    "pixels": len(places),
                    "by": method,
                    "AUROC": f"{100 * middle['auroc']:.1f}",
                    **{
                        f"found at {RATES[at]:.0e}": f"{100 * middle['found'][at]:.0f}"
                        for at in (4, 8)
                    },
                    **{
                        f"realised at {RATES[at]:.0e}": f"{middle['realised'][at]:.1e}"
                        for at in (0, 4, 8)
                    },
                }
            )
        rates, alarms = zip(*alone[label], strict=True)
        total = np.sum(alarms, axis=0)
        most = int(total.argmax())
        print(
            f"{NAMES[label]}: ACE at 1e-3 with a background without the class alarms at "
            f"{np.median(rates):.1e}; {total[most] / total.sum():.0%} of these are {NAMES[most]}"
        )
    show(f"medians over {DRAWS} draws", "pines-detection.csv", rows)
    draw_figure(classes, judged, maps)


def draw_figure(classes: Any, judged: Any, maps: Any) -> None:
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 10.2), layout="constrained")
    axes = figure.subplots(3, 4, height_ratios=(1.25, 1, 1))
    for column, label in enumerate(RARE):
        top, middle, bottom = axes[:, column]
        scores, chosen = maps[label]
        drawn = top.imshow(scores, cmap="gray_r", norm=PowerNorm(0.5, 0.02, 0.3))
        top.contour(classes == label, levels=[0.5], colors="C3", linewidths=0.9)
        top.scatter(chosen[:, 1], chosen[:, 0], 3, c="C0", linewidths=0)
        top.set_title(f"{NAMES[label]}, {(classes == label).sum()} pixels", fontsize=11)
        top.set_xticks([])
        top.set_yticks([])
        for method, colour in COLOURS.items():
            runs = judged[label, method]
            for panel, key in ((middle, "found"), (bottom, "realised")):
                values = np.array([run[key] for run in runs])
                low, mid, high = np.quantile(values, [0.1, 0.5, 0.9], axis=0)
                if key == "realised":  # none among some ten thousand, at the edge of the panel
                    low, mid, high = (np.maximum(v, 3e-5) for v in (low, mid, high))
                panel.plot(RATES, mid, color=colour, label=method, marker=".", markersize=4)
                panel.fill_between(RATES, low, high, color=colour, alpha=0.15, linewidth=0)
        middle.set(xscale="log", ylim=(-0.03, 1.03), xlabel="false-alarm rate, counted")
        for panel, line in ((middle, "chance"), (bottom, "as promised")):
            panel.plot(RATES, RATES, color="black", linewidth=0.8, linestyle=":", label=line)
        bottom.set(xscale="log", yscale="log", ylim=(3e-5, 0.6))
        bottom.set(xlabel="false-alarm rate, promised")
        for panel in (middle, bottom):
            panel.grid(alpha=0.25)
    figure.colorbar(drawn, ax=axes[0, -1], label="ACE", shrink=0.85, extend="both")
    axes[1, 0].set_ylabel(f"found, of pixels\nbesides the {LABELLED} labelled")
    axes[2, 0].set_ylabel("false-alarm rate, realised")
    axes[1, 0].legend(fontsize=8, loc="upper left")
    axes[2, 3].legend(*[part[-1:] for part in axes[2, 3].get_legend_handles_labels()], fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, dpi=90)
    print(f"drew {FIGURE}")


def classify() -> None:
    """All classes, from a tenth of each."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.metrics import balanced_accuracy_score, cohen_kappa_score
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from torchlace.estimators import LACEClassifier

    image, classes = load()
    X, y = image[classes > 0], classes[classes > 0]
    grid = {"C": np.logspace(0, 4, 5), "gamma": np.logspace(-4, -1, 4)}
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    models = {
        "LACEClassifier": LACEClassifier(random_state=0),
        "SVM, RBF, cross-validated": GridSearchCV(SVC(), grid, cv=folds),
        "LDA, shrunk": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
        "LDA": LinearDiscriminantAnalysis(),
    }
    figures: dict[str, list[Any]] = {name: [] for name in models}
    for seed in range(10):
        parts = train_test_split(X, y, train_size=0.1, stratify=y, random_state=seed)
        for name, model in models.items():
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # oats have two pixels to learn from, for three folds
                found = make_pipeline(StandardScaler(), model).fit(parts[0], parts[2])
            guess = found.predict(parts[1])
            figures[name].append(
                (
                    (guess == parts[3]).mean(),
                    balanced_accuracy_score(parts[3], guess),
                    cohen_kappa_score(parts[3], guess),
                )
            )
    rows = []
    for name, values in figures.items():
        means, spreads = 100 * np.mean(values, 0), 100 * np.std(values, 0, ddof=1)
        cells = [f"{m:.1f} ± {s:.1f}" for m, s in zip(means, spreads, strict=True)]
        columns = ("overall accuracy", "mean over classes", "kappa")
        rows.append({"by": name, **dict(zip(columns, cells, strict=True))})
    show("a tenth to learn from, ten splits", "pines-classification.csv", rows)


def planted() -> None:
    """False alarms at a promised 1e-3 among Gaussian pixels, of which 60 hold a target."""
    count, bands, targets, rate, repeats = 10_000, 50, 60, 1e-3, 40
    rows = []
    for strength in (0, 3, 5, 8):
        rates: dict[str, list[float]] = {}
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            for tails in ("Gaussian", "heavy"):
                pixels = rng.normal(size=(count, bands))
                if tails == "heavy":  # multivariate t with four degrees of freedom
                    pixels /= np.sqrt(rng.chisquare(4, count) / 4)[:, None]
                target = np.eye(bands)[0] * strength if strength else np.eye(bands)[0]
                pixels[:targets] += strength * np.eye(bands)[0]
                others = pixels[targets:]
                ways = {
                    "all": ACEDetector(target, false_alarm=rate).fit_predict(pixels)[targets:],
                    "without targets": ACEDetector(target, false_alarm=rate).fit_predict(others),
                }
                new = rng.normal(size=(count, bands))
                clean = ACEDetector(target, false_alarm=rate).fit(new)
                if tails == "Gaussian":
                    ways["other pixels"] = clean.predict(others)
                for way, found in ways.items():
                    rates.setdefault(f"{tails}, {way}", []).append(float(found.mean()))
        # Along the target the variance is 1 + c, so odds of r² are smaller by that.
        share = targets / count
        c = share * (1 - share) * strength**2
        tau = stats.beta.isf(rate, 0.5, (bands - 1) / 2)
        odds = (1 + c) * tau / (1 - tau)
        rows.append(
            {
                "deviations": strength,
                "predicted": f"{stats.beta.sf(odds / (1 + odds), 0.5, (bands - 1) / 2):.2e}",
                **{name: f"{np.mean(values):.2e}" for name, values in rates.items()},
            }
        )
    show(f"alarms at {rate:g}, {targets} targets in {count:,} pixels", "pines-planted.csv", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    tasks = {"detect": detect, "classify": classify, "planted": planted}
    for name, task in tasks.items():
        parser.add_argument(f"--{name}", action="store_true", help=task.__doc__)
    args = parser.parse_args()
    for name, task in tasks.items():
        if getattr(args, name):
            task()


if __name__ == "__main__":
    main()
