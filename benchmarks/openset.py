r"""Samples of no known class: all scores of `torchlace.detection` on the same trained models.

    python benchmarks/openset.py --root DIR                     # resnet18, minutes on a GPU
    python benchmarks/openset.py --root DIR --backbone small-cnn --epochs 4 --images 8000 \
        --device cpu --tag=-few                                 # on a CPU
    ... --choose                                                # which score is the default
    ... --promise                                               # is the wanted rate kept?

Tasks: `fashion-A`, FashionMNIST without the classes A, which are then the unknown ones; `cifar`,
CIFAR-10 against the test images of CIFAR-100 and SVHN; `digits-A`, the 8 × 8 digits of scikit-learn
without the digits A, as pixels, without a network: `softmax` is then logistic regression and `lace`
is LACEClassifier. Networks are trained by torchlace's own trainer. An OpenSet learns from the
validation images (known classes only), figures are from test images: percent of AUROC, of unknown
samples accepted where 95 % of the known are, of AUPR, and of samples rejected at the threshold for
5 % false rejections. Rows go to results/openset-DEVICE[TAG].csv, in the place of those of the same
model, under a lock, so that tasks may run in processes side by side (`--tasks cifar`).

`--choose` looks at no test image: an OpenSet learns from one half of the validation images, known
samples are the other half, unknown ones the *training* images of the held-out classes, which no
network saw. The rule: the best mean rank of AUROC over all models. Writes
results/openset-choice.csv. `cifar` and the digits without 2, 4, 6 or 0, 5, 8 play no part in it.

`--promise` fits OpenSet to 800 test images and counts how many of the others it rejects, over 200
splits. Writes results/openset-promise.csv.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from torchlace.data import load_data, read_pack, stratified_split, write_pack
from torchlace.data.packs import data_root, to_tensor
from torchlace.detection import SCORES, OpenSet
from torchlace.estimators import LACEClassifier
from torchlace.runs import LoadedRun, load_run
from torchlace.training import TrainConfig, train

RESULTS = Path(__file__).parent / "results"
FASHION = ("fashion-0,4,8", "fashion-1,5,6", "fashion-2,7,9")
CHOOSING = (*FASHION, "digits-7,8,9", "digits-0,1,2", "digits-3,4,5", "digits-1,6,9")
TASKS = (*FASHION, "cifar", "digits-2,4,6", "digits-0,5,8")
FIGURES = ("auroc", "fpr_at_95_recall", "aupr", "rejected_known", "rejected_unknown")
# One score of each kind: of directions, of samples, of logits.
PROMISED = ("relative-ace", "nearest-neighbours", "energy")
SPLITS, FITTED, WANTED = 200, 800, 0.05

Row = dict[str, Any]


class Case(NamedTuple):
    """A trained model, what an OpenSet learns from, and what it is judged by."""

    model: Any
    held: tuple[Any, Any]
    known: tuple[Any, Any]
    unknown: dict[str, Any]
    facts: Row


def case(task: str, head: str, seed: int, args: argparse.Namespace) -> Case:
    return (digits if task.startswith("digits") else network)(task, head, seed, args)


def digits(task: str, head: str, seed: int, args: argparse.Namespace) -> Case:
    X, y = load_digits(return_X_y=True)
    known = ~np.isin(y, held_out(task))
    part = np.random.default_rng(seed).permutation(len(y)) % 3
    fitted, held, test = (known & (part == number) for number in range(3))
    lace = LACEClassifier(refine=False, random_state=seed)
    model = lace if head == "lace" else LogisticRegression(max_iter=500)
    model.fit(X[fitted], y[fitted])
    facts = {"accuracy": round(100 * model.score(X[test], y[test]), 2), "backbone": "pixels"}
    found = (model, (X[held], y[held]), (X[test], y[test]), {"digits": X[~known]})
    return Case(*found, {**facts, "epochs": ""})


def network(task: str, head: str, seed: int, args: argparse.Namespace) -> Case:
    pack = known_pack(task, args)
    options = {"backbone": args.backbone, "epochs": args.epochs, "device": args.device}
    config = TrainConfig(
        data=str(pack), head=head, seed=seed, validation=args.validation, **options
    )
    place = Path(args.runs) / f"{task}-{head}-{args.backbone}-{seed}"
    result = train(config, place)
    run, data = load_run(place, args.device), load_data(pack)
    _, chosen = stratified_split(data.train.labels, config.validation, seed)
    held = embed(run, data.train.batch(chosen)), data.train.labels[chosen].numpy()
    if args.choose:
        first, second = stratified_split(torch.from_numpy(held[1]), 0.5, seed)
        held, known = ((held[0][rows], held[1][rows.numpy()]) for rows in (first, second))
    else:
        images = data.test.batch(torch.arange(len(data.test)))
        known = embed(run, images), data.test.labels.numpy()
    part = "train" if args.choose else "test"
    outside = {name: embed(run, images) for name, images in unknown(task, part, args).items()}
    facts = {"accuracy": round(result["test_accuracy"], 2), "backbone": args.backbone}
    return Case(run.model.head, held, known, outside, {**facts, "epochs": result["epochs"]})


def embed(run: LoadedRun, images: torch.Tensor) -> torch.Tensor:
    """Features of uint8 images, (N, C, H, W)."""
    with torch.inference_mode():
        parts = [run.model.embed(run.prepare(p.to(run.device))).cpu() for p in images.split(512)]
    return torch.cat(parts).clone()


def known_pack(task: str, args: argparse.Namespace) -> Path:
    """The pack to train and test on: known classes only, of them so many images."""
    path = Path(args.runs) / f"{task}.npz"
    # Another process may write the same: whole files are renamed, the last one stays.
    if not path.exists():
        cifar = task == "cifar"
        arrays = read_pack(args.root / ("cifar10.npz" if cifar else "fashion_mnist.npz"))
        kept = np.setdiff1d(np.arange(10), [] if cifar else held_out(task))
        pack: dict[str, Any] = {"class_names": kept.astype(str)}
        for part, most in (("train", args.images), ("test", args.test_images)):
            labels = arrays[f"y_{part}"]
            chosen = drawn(np.flatnonzero(np.isin(labels, kept)), most)
            pack[f"x_{part}"] = arrays[f"x_{part}"][chosen]
            pack[f"y_{part}"] = np.searchsorted(kept, labels[chosen])
        path.parent.mkdir(parents=True, exist_ok=True)
        write_pack(path, pack)
    return path


def unknown(task: str, part: str, args: argparse.Namespace) -> dict[str, torch.Tensor]:
    """Images of no class in the pack, from those to train or those to test."""
    names = ("cifar100", "svhn") if task == "cifar" else ("fashion_mnist",)
    found = {}
    for name in names:
        arrays = read_pack(args.root / f"{name}.npz")
        there = np.arange(len(arrays[f"y_{part}"]))
        if task != "cifar":
            there = np.flatnonzero(np.isin(arrays[f"y_{part}"], held_out(task)))
        found[name] = to_tensor(arrays[f"x_{part}"][drawn(there, args.test_images)])
    return found


def drawn(rows: np.ndarray, most: int | None) -> np.ndarray:
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def held_out(task: str) -> list[int]:
    return [int(label) for label in task.partition("-")[2].split(",")]


def compare(task: str, head: str, seed: int, args: argparse.Namespace) -> list[Row]:
    """All scores of one model."""
    own, rows = case(task, head, seed, args), []
    for score in SCORES:
        guarded = OpenSet(own.model, score=score, false_rejection=WANTED).fit(*own.held)
        for name, samples in own.unknown.items():
            found = guarded.evaluate(own.known[0], samples)
            figures = {figure: round(100 * found[figure], 2) for figure in FIGURES}
            place = {"task": task, "head": head, "seed": seed, "unknown": name, "score": score}
            rows.append({**place, **figures, **own.facts})
    return rows


def promise(task: str, head: str, seed: int, args: argparse.Namespace) -> list[Row]:
    """How often OpenSet rejects known samples, over splits of the test images."""
    own, rows = case(task, head, seed, args), []
    x, y = own.known
    for score in PROMISED:
        for alone in (False, True):
            options = {"score": score, "false_rejection": WANTED, "per_class": alone}
            found = []
            for split in range(SPLITS):
                order = np.random.default_rng(split).permutation(len(y))
                fitted, new = order[:FITTED], order[FITTED:]
                guarded = OpenSet(own.model, **options).fit(x[fitted], y[fitted])
                rejected = guarded.decision_function(x[new]) < 0
                each = [rejected[y[new] == label].mean() for label in np.unique(y)]
                found.append([rejected.mean(), *each])
            means = 100 * np.mean(found, axis=0)
            figures = {"mean": means[0], "deviation": 100 * np.std(found, axis=0)[0]}
            figures["worst_class"] = means[1:].max()
            row = {"task": task, "head": head, "seed": seed, "score": score, "per_class": alone}
            row.update({name: round(value, 2) for name, value in figures.items()})
            rows.append({**row, "wanted": 100 * WANTED, "fitted": FITTED, "splits": SPLITS})
    return rows


def record(path: Path, rows: list[Row]) -> list[Row]:
    """Put rows in the place of those of the same model; all rows then."""

    def model(row: Row) -> list[str]:
        return [str(row[name]) for name in ("task", "head", "seed")]

    path.parent.mkdir(exist_ok=True)
    with path.open("a+", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = [row for row in csv.DictReader(file) if model(row) != model(rows[0])]
        every = sorted(kept + rows, key=model)
        file.truncate(0)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)
    return every


def show(rows: list[Row]) -> None:
    """AUROC / unknown samples accepted for each model, their means, the mean rank; in Markdown."""
    models = sorted({(row["task"], row["unknown"], row["head"], str(row["seed"])) for row in rows})
    found: dict[str, list[list[float]]] = {}
    for row in sorted(
        rows, key=lambda r: models.index((r["task"], r["unknown"], r["head"], str(r["seed"])))
    ):
        found.setdefault(row["score"], []).append([float(row[name]) for name in FIGURES[:2]])
    figures = np.array([*found.values()])
    ranks = rankdata(-figures[:, :, 0], axis=0).mean(1)
    print("| score |", " | ".join(map(", ".join, (m[:3] for m in models))), "| mean | rank |")
    print("|", " | ".join(["---"] * (len(models) + 3)), "|")
    for index in np.argsort(ranks):
        cells = [f"{a:.1f} / {b:.1f}" for a, b in [*figures[index], figures[index].mean(0)]]
        print("|", " | ".join([[*found][index], *cells, f"{ranks[index]:.1f}"]), "|")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", help="where packs of data lie")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--images", type=int, help="training images, of all classes together")
    parser.add_argument("--test-images", type=int, help="test images of each set at most")
    parser.add_argument(
        "--validation", type=float, default=0.1, help="share of the training images"
    )
    parser.add_argument("--heads", default="lace,softmax")
    parser.add_argument("--tasks", help="separated by semicolons")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", default="runs/openset", help="where trained runs are kept")
    parser.add_argument("--tag", default="")
    parser.add_argument("--choose", action="store_true", help="which score is best, without a test")
    parser.add_argument("--promise", action="store_true", help="count false rejections")
    args = parser.parse_args()
    args.root = data_root(args.root)
    device = "cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu"
    name = "choice" if args.choose else "promise" if args.promise else device
    rows: list[Row] = []
    for task in args.tasks.split(";") if args.tasks else CHOOSING if args.choose else TASKS:
        for head in args.heads.split(","):
            for seed in range(args.seeds):
                found = (promise if args.promise else compare)(task, head, seed, args)
                rows = record(RESULTS / f"openset-{name}{args.tag}.csv", found)
    if not args.promise:
        show(rows)


if __name__ == "__main__":
    main()
