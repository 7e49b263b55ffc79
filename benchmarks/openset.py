"""Open-set rejection on real images: ACE beside the usual scores, on the same trained networks.

    python benchmarks/openset.py --root DIR --device cuda       # resnet18, a few minutes on a GPU
    python benchmarks/openset.py --root DIR --backbone small-cnn --epochs 4 --tag=-small  # CPU
    python benchmarks/openset.py --root DIR --backbone small-cnn --epochs 4 --choose

Tasks: `fashion-A`, FashionMNIST without the classes A, which are then the unknown ones;
`cifar-svhn`, CIFAR-10 against the test images of SVHN. Networks are trained by torchlace's own
trainer. Class statistics and thresholds come from the validation split (known classes only), all
figures from test images: percent of AUROC, of unknown samples accepted where 95 % of the known are,
of samples rejected at the fitted threshold. Rows are added to results/openset-DEVICE[TAG].csv and
replace those of the same network, under a lock: tasks may run in processes side by side
(`--tasks cifar-svhn`), and the last one to end prints the table of them all.

`--choose` compares definitions of the score `ace` without a test image: statistics come from one
half of the validation images, known samples are the other half, unknown ones the *training* images
of the held-out FashionMNIST classes, which no network saw. Writes results/openset-choice.csv.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.covariance import ledoit_wolf
from torch import Tensor

from torchlace.data import ImageData, load_data, read_pack, stratified_split, write_pack
from torchlace.data.packs import data_root, to_tensor
from torchlace.detection import OpenSet, separation
from torchlace.detection.open_set import SCORES
from torchlace.functional import ace, cholesky_whitening
from torchlace.inspection import LoadedRun, load_run
from torchlace.inspection.spaces import spaces
from torchlace.training import TrainConfig, train

RESULTS = Path(__file__).parent / "results"
TASKS = "fashion-0,4,8;fashion-1,5,6;fashion-2,7,9;cifar-svhn"
FIGURES = ("auroc", "fpr_at_95_recall", "rejected_known", "rejected_unknown")
# What `ace` is; to replace it, a candidate must gain so many points of AUROC.
BEFORE, CLEARLY = "class means, total, mean of means", 1.0

Row = dict[str, Any]
Score = Callable[[Tensor], Tensor]


class Trained(NamedTuple):
    """A network, what it was trained on, and which of it was held out."""

    run: LoadedRun
    data: ImageData
    held: Tensor
    result: Row

    def validation(self) -> tuple[Tensor, Tensor]:
        """Features and labels of the validation split."""
        images = self.data.train.batch(self.held)
        return self.embed(images), self.data.train.labels[self.held]

    def embed(self, images: Tensor) -> Tensor:
        """Features of uint8 images, (N, C, H, W)."""
        run = self.run
        with torch.inference_mode():
            parts = [run.model.embed(run.prepare(p.to(run.device))) for p in images.split(512)]
        return torch.cat(parts).clone()


def trained(task: str, head: str, seed: int, args: argparse.Namespace) -> Trained:
    folder = Path(args.runs)
    pack = known(task, args.root, folder)
    options = {"backbone": args.backbone, "epochs": args.epochs, "device": args.device}
    config = TrainConfig(data=str(pack), head=head, seed=seed, **options)
    place = folder / f"{task}-{head}-{args.backbone}-{seed}"
    result = train(config, place)
    data = load_data(pack)
    _, held = stratified_split(data.train.labels, config.validation, seed)
    return Trained(load_run(place, args.device), data, held, result)


def known(task: str, root: Path, folder: Path) -> Path:
    """The pack to train and test on."""
    if task == "cifar-svhn":
        return root / "cifar10.npz"
    path = folder / f"{task}.npz"
    # Another process may write the same: whole files are renamed, the last one stays.
    if not path.exists():
        arrays = read_pack(root / "fashion_mnist.npz")
        kept = np.setdiff1d(np.arange(10), held_out(task))
        pack: dict[str, Any] = {"class_names": kept.astype(str)}
        for part in ("train", "test"):
            labels = arrays[f"y_{part}"]
            chosen = np.isin(labels, kept)
            pack[f"x_{part}"] = arrays[f"x_{part}"][chosen]
            pack[f"y_{part}"] = np.searchsorted(kept, labels[chosen])
        write_pack(path, pack)
    return path


def unknown(task: str, root: Path, part: str) -> Tensor:
    """Images of no class in the pack, from those to train or those to test."""
    if task == "cifar-svhn":
        return to_tensor(read_pack(root / "svhn.npz")[f"x_{part}"])
    arrays = read_pack(root / "fashion_mnist.npz")
    return to_tensor(arrays[f"x_{part}"][np.isin(arrays[f"y_{part}"], held_out(task))])


def held_out(task: str) -> list[int]:
    return [int(label) for label in task.removeprefix("fashion-").split(",")]


def compare(task: str, head: str, seed: int, args: argparse.Namespace) -> list[Row]:
    """All scores of one network, on test images."""
    network = trained(task, head, seed, args)
    validation, labels = network.validation()
    inside = network.embed(network.data.test.batch(torch.arange(len(network.data.test))))
    outside = network.embed(unknown(task, args.root, "test"))
    rows = []
    for score in SCORES:
        guarded = OpenSet(network.run.model.head, score=score).fit(validation, labels)
        found = guarded.evaluate(inside, outside)
        figures = {name: round(100 * found[name], 2) for name in FIGURES}
        accuracy, epochs = round(network.result["test_accuracy"], 2), network.result["epochs"]
        row = {"task": task, "head": head, "seed": seed, "score": score, **figures}
        rows.append({**row, "accuracy": accuracy, "backbone": args.backbone, "epochs": epochs})
    return rows


def choose(task: str, head: str, seed: int, args: argparse.Namespace) -> list[Row]:
    """All candidates for `ace` of one network, without test images."""
    network = trained(task, head, seed, args)
    features, labels = network.validation()
    fitted, scored = stratified_split(labels, 0.5, seed)
    outside = network.embed(unknown(task, args.root, "train"))
    rows = []
    for name, score in candidates(network, features[fitted], labels[fitted]).items():
        found = separation(score(features[scored]).cpu(), score(outside).cpu())
        figures = {figure: round(100 * value, 2) for figure, value in found.items()}
        rows.append({"task": task, "head": head, "seed": seed, "score": name, **figures})
    return rows


def candidates(network: Trained, features: Tensor, labels: Tensor) -> dict[str, Score]:
    """Scores by ACE. Signatures; what whitens; what is subtracted from samples and signatures."""
    head, device = network.run.model.head, features.device
    x = features.double()
    means = torch.stack([x[labels == c].mean(0) for c in labels.unique()])
    middle, overall, zero = means.mean(0), x.mean(0), torch.zeros_like(x[0])
    within = whitening(x - means[labels.to(device)])
    total = whitening(x - overall)
    # A head without a background compares features as they are.
    factor, background = spaces(head, features[:1]).factor, getattr(head, "background", None)
    own = torch.eye(len(zero)).to(x) if factor is None else factor.mT
    origin = zero if background is None else background.mean.double()

    def cosine(matrix: Tensor, centre: Tensor) -> Score:
        options: dict[str, Any] = {"whitening": matrix, "centre_signatures": True}
        return lambda x: ace(x.double(), means, centre, **options).amax(1)

    def length(x: Tensor, matrix: Tensor = total) -> Tensor:
        return torch.linalg.vector_norm((x.double() - middle) @ matrix.mT, dim=1)

    def distance(x: Tensor) -> Tensor:
        """To the nearest class mean, squared."""
        return torch.cdist(x.double() @ within.mT, means @ within.mT).amin(1).square()

    signatures = (means - middle) @ total.mT / length(means)[:, None]

    def cosines(x: Tensor) -> Tensor:
        return (x.double() - middle) @ total.mT @ signatures.mT / length(x)[:, None]

    plain, present = cosine(within, middle), cosine(total, middle)
    usual = length(features).median()
    return {
        "class means, within, mean of means": plain,
        "class means, within, mean of all": cosine(within, overall),
        "class means, within, nothing": cosine(within, zero),
        BEFORE: present,
        "class means, total, mean of all": cosine(total, overall),
        "the present one, energy": lambda x: (math.sqrt(len(zero)) * cosines(x)).logsumexp(1),
        "the present one, largest softmax": lambda x: (8 * cosines(x)).softmax(1).amax(1),
        "the present one, times length": lambda x: present(x) * length(x),
        "the present one, times length up to the usual": lambda x: (
            present(x) * length(x).clamp_max(usual)
        ),
        "relative Mahalanobis distance": lambda x: length(x).square() - distance(x),
        "class means, the head's own background": cosine(own, origin),
        "the head's signatures and background": lambda x: spaces(head, x).cosines.amax(1),
        "first one with magnitude: Kelly": lambda x: (
            plain(x) * length(x, within) / (len(zero) + length(x, within) ** 2).sqrt()
        ),
        "first one with magnitude: matched filter": lambda x: plain(x) * length(x, within),
    }


def whitening(deviations: Tensor) -> Tensor:
    covariance, _ = ledoit_wolf(deviations.cpu().numpy(), assume_centered=True)
    return cholesky_whitening(torch.from_numpy(covariance)).to(deviations)


def record(path: Path, rows: list[Row]) -> list[Row]:
    """Put rows in the place of those of the same network; all rows then."""

    def network(row: Row) -> list[str]:
        return [str(row[name]) for name in ("task", "head", "seed")]

    path.parent.mkdir(exist_ok=True)
    with path.open("a+", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        kept = [row for row in csv.DictReader(file) if network(row) != network(rows[0])]
        every = sorted(kept + rows, key=network)
        file.truncate(0)
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(every)
    return every


def show(rows: list[Row]) -> None:
    """AUROC / unknown samples accepted, means over seeds and, last, over networks; in Markdown."""
    networks = sorted({(row["task"], row["head"]) for row in rows})
    columns = ["score", *map(", ".join, networks), "mean"]
    print("|", " | ".join(columns), "|\n|", " | ".join("---" for _ in columns), "|")
    for score in dict.fromkeys(row["score"] for row in rows):
        cells = []
        for own in networks:
            mine = [
                row for row in rows if (row["task"], row["head"], row["score"]) == (*own, score)
            ]
            cells.append([np.mean([float(row[name]) for row in mine]) for name in FIGURES[:2]])
        cells.append(np.mean(cells, axis=0).tolist())
        print("|", " | ".join([score, *(f"{a:.1f} / {b:.1f}" for a, b in cells)]), "|")


def verdict(rows: list[Row]) -> str:
    """Which definition it shall be, by the rule that was there before the figures."""
    names = dict.fromkeys(row["score"] for row in rows)
    area = {n: np.mean([float(row["auroc"]) for row in rows if row["score"] == n]) for n in names}
    best = max(area, key=area.__getitem__)
    ahead = area[best] - area[BEFORE]
    chosen = best if ahead >= CLEARLY else BEFORE
    return f"highest AUROC: {best}, {ahead:.2f} points above the one before; chosen: {chosen}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--root", help="where packs of data lie")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--heads", default="lace,softmax")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", default="runs/openset", help="where trained runs are kept")
    parser.add_argument("--tag", default="")
    parser.add_argument("--choose", action="store_true", help="compare definitions of `ace`")
    args = parser.parse_args()
    args.root = data_root(args.root)
    device = "cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu"
    name = "choice" if args.choose else device
    rows: list[Row] = []
    for task in args.tasks.split(";"):
        if args.choose and task == "cifar-svhn":
            continue  # the one task whose unknown classes play no part in the choice
        for head in args.heads.split(","):
            for seed in range(args.seeds):
                found = (choose if args.choose else compare)(task, head, seed, args)
                rows = record(RESULTS / f"openset-{name}{args.tag}.csv", found)
                show(found)
    show(rows)
    if args.choose:
        print(verdict(rows))


if __name__ == "__main__":
    main()
