"""Open-set rejection on real images: ACE beside the usual scores, on the same trained networks.

    python benchmarks/openset.py --root DIR --device cuda       # resnet18, a few minutes on a GPU
    python benchmarks/openset.py --root DIR --backbone small-cnn --epochs 4 --tag=-small  # CPU

Tasks: `fashion-A`, FashionMNIST without the classes A, which are then the unknown ones;
`cifar-svhn`, CIFAR-10 against the test images of SVHN. Networks are trained by torchlace's own
trainer. Class statistics and thresholds come from the validation split (known classes only), all
figures from test images. The definition of `ace` was chosen by looking at fashion-0,4,8 with
small-cnn: the other tasks are the test of it. Prints percent (AUROC, unknown samples accepted where
95 % of the known are, samples rejected at the fitted threshold); writes
results/openset-DEVICE[TAG].csv.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlace.cli.common import print_table
from torchlace.data import load_data, read_pack, stratified_split, write_pack
from torchlace.data.packs import data_root
from torchlace.detection import OpenSet
from torchlace.detection.open_set import SCORES
from torchlace.inspection import LoadedRun, load_run
from torchlace.training import TrainConfig, train

RESULTS = Path(__file__).parent / "results"
TASKS = "fashion-0,4,8;fashion-1,5,6;fashion-2,7,9;cifar-svhn"
FIGURES = ("auroc", "fpr_at_95_recall", "rejected_known", "rejected_unknown")


def known_and_unknown(task: str, root: Path, folder: Path) -> tuple[Path, np.ndarray]:
    """The pack to train and test on, and images of no class in it."""
    if task == "cifar-svhn":
        return root / "cifar10.npz", read_pack(root / "svhn.npz")["x_test"]
    held_out = [int(label) for label in task.removeprefix("fashion-").split(",")]
    arrays = read_pack(root / "fashion_mnist.npz")
    kept = [label for label in range(10) if label not in held_out]
    pack: dict[str, Any] = {"class_names": np.array([str(label) for label in kept])}
    for part in ("train", "test"):
        labels = arrays[f"y_{part}"]
        chosen = np.isin(labels, kept)
        pack[f"x_{part}"] = arrays[f"x_{part}"][chosen]
        pack[f"y_{part}"] = np.searchsorted(kept, labels[chosen])
    path = folder / f"{task}.npz"
    if not path.exists():
        write_pack(path, pack)
    return path, arrays["x_test"][np.isin(arrays["y_test"], held_out)]


def embed(loaded: LoadedRun, images: Tensor) -> Tensor:
    """Features of uint8 images, (N, C, H, W)."""
    with torch.inference_mode():
        parts = [
            loaded.model.embed(loaded.prepare(part.to(loaded.device))) for part in images.split(512)
        ]
    return torch.cat(parts).clone()


def run_task(task: str, head: str, seed: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    folder, root = Path(args.runs), data_root(args.root)
    pack, unknown = known_and_unknown(task, root, folder)
    config = TrainConfig(
        data=str(pack),
        head=head,
        backbone=args.backbone,
        epochs=args.epochs,
        seed=seed,
        device=args.device,
    )
    place = folder / f"{task}-{head}-{args.backbone}-{seed}"
    result = train(config, place)
    loaded, data = load_run(place, args.device), load_data(pack)
    _, held = stratified_split(data.train.labels, config.validation, seed)
    others = torch.from_numpy(unknown)
    others = others[:, None] if others.dim() == 3 else others.permute(0, 3, 1, 2)
    validation = embed(loaded, data.train.batch(held))
    known = embed(loaded, data.test.batch(torch.arange(len(data.test))))
    rest = embed(loaded, others)
    rows = []
    for score in SCORES:
        guarded = OpenSet(loaded.model.head, score=score)
        guarded.fit(validation, data.train.labels[held])
        found = guarded.evaluate(known, rest)
        rows.append(
            {
                "task": task,
                "head": head,
                "seed": seed,
                "score": score,
                **{name: round(100 * found[name], 2) for name in FIGURES},
                "accuracy": round(result["test_accuracy"], 2),
                "backbone": args.backbone,
                "epochs": result["epochs"],
            }
        )
    return rows


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
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for task in args.tasks.split(";"):
        for head in args.heads.split(","):
            for seed in range(args.seeds):
                rows += run_task(task, head, seed, args)
                shown = [[str(row[name]) for name in ("score", *FIGURES)] for row in rows]
                title = f"{task}, {head}, seed {seed}: {rows[-1]['accuracy']} % accuracy"
                print_table(title, ["score", *FIGURES], shown[-len(SCORES) :])
    RESULTS.mkdir(exist_ok=True)
    device = "cuda" if args.device != "cpu" and torch.cuda.is_available() else "cpu"
    with (RESULTS / f"openset-{device}{args.tag}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
