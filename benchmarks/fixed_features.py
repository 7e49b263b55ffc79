"""Heads on features that nothing trains: test accuracy over stratified splits, against softmax.

    python benchmarks/fixed_features.py [--splits 50] [--jobs 2] [--sets wine,iris]
        [--rows lace,total] [--data DIR]

The rows are those of the grid `robust` that can be run. Every head gets what the linear layer of
softmax gets: the same splits (70 % to train on), order, batches, Adam at 1e-3 and 30 epochs.
Features are standardised by the training samples; `256` are random ReLU features of these.
Differences are paired by split, with a 95 % interval of their mean. `fashion_mnist`, which needs
the folder of its pack, are 3,000 images through a small network that was trained on the first five
of its classes.
"""

import argparse
import math
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedShuffleSplit

import torchlace as tl
from torchlace.data import load_data
from torchlace.experiments import load_experiment

EPOCHS, RATE, TRAIN = 30, 1e-3, 0.7


def clutter(count=1500, classes=3, width=20):
    """Classes that differ by little in directions of small variance, in strong common clutter."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % classes
    mixing = rng.standard_normal((width, width)) * np.geomspace(10, 0.1, width)
    means = rng.standard_normal((classes, width)) * 0.3
    return (rng.standard_normal((count, width)) @ mixing.T + means[y]).astype(np.float32), y


SETS = {
    "breast_cancer": (partial(load_breast_cancer, return_X_y=True), 64),
    "wine": (partial(load_wine, return_X_y=True), 16),
    "iris": (partial(load_iris, return_X_y=True), 16),
    "digits": (partial(load_digits, return_X_y=True), 64),
    "clutter": (clutter, 64),
    "digits 3 8": (lambda: _two(*load_digits(return_X_y=True), 3, 8), 16),
    "fashion_mnist": (None, 64),
}


def _two(x, y, *kept):
    chosen = np.isin(y, kept)
    return x[chosen], (y[chosen] == kept[1]).astype(np.int64)


def frozen(root, count=3000):
    """Features of FashionMNIST by a network that saw the first half of its classes."""
    torch.manual_seed(0)
    train = load_data("fashion_mnist", root).train
    images, labels = train.images.float() / 255, train.labels
    model = tl.Classifier("small-cnn", head="softmax", num_classes=5, channels=images.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    half = torch.where(labels < 5)[0]
    for _ in range(2):
        for chosen in half[torch.randperm(len(half))].split(128):
            optimizer.zero_grad()
            model.loss(images[chosen], labels[chosen]).backward()
            optimizer.step()
    chosen = torch.randperm(len(labels))[:count]
    with torch.no_grad():
        found = model.eval().embed(images[chosen])
    return found.numpy(), labels[chosen].numpy()


def rows():
    """Name of each head and what makes it: its registered name, options, label smoothing."""
    experiment = load_experiment("robust")
    can_run = {row.name for row in experiment.rows if not row.archived}
    column = experiment.columns[0].name
    found = {c.row: c.task.config for c in experiment.cells() if c.column == column}
    return {
        n: (c.head, c.head_options, c.label_smoothing) for n, c in found.items() if n in can_run
    }


def features(x, train, kind, seed):
    mean, deviation = x[train].mean(0), x[train].std(0)
    x = (x - mean) / np.where(deviation > 1e-6, deviation, 1)
    x = torch.tensor(x, dtype=torch.float32)
    if kind == "256":
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(x.shape[1], 256, generator=generator) / x.shape[1] ** 0.5
        x = torch.relu(x @ weight + 0.5 * torch.randn(256, generator=generator))
    return x


def accuracy(row, x, y, train, test, batch, seed):
    name, options, smoothing = row
    torch.manual_seed(seed)
    head = tl.heads.create(name, x.shape[1], int(y.max()) + 1, **options)
    optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        order = train[torch.randperm(len(train))]
        for chosen in order.split(batch):
            if len(chosen) < batch:
                continue
            optimizer.zero_grad()
            head.loss(x[chosen], y[chosen], label_smoothing=smoothing).backward()
            optimizer.step()
    return 100 * (head.eval().predict(x[test]) == y[test]).double().mean().item()


def split(job):
    """Accuracy of every head on one split of one set."""
    heads, name, kind, seed, place = job
    torch.set_num_threads(1)
    load, batch = SETS[name]
    x, y = load() if load else np.load(place).values()
    train, test = next(StratifiedShuffleSplit(1, train_size=TRAIN, random_state=seed).split(x, y))
    data = features(x, train, kind, seed), torch.tensor(y, dtype=torch.int64)
    train, test = torch.tensor(train), torch.tensor(test)
    return {name: accuracy(row, *data, train, test, batch, seed) for name, row in heads.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sets", help="names, separated by commas")
    parser.add_argument("--rows", help="of the grid, separated by commas, besides softmax")
    parser.add_argument("--data", help="folder of the packs, for fashion_mnist")
    args = parser.parse_args()
    names = args.sets.split(",") if args.sets else [n for n in SETS if SETS[n][0] or args.data]
    heads = rows()
    if args.rows:
        heads = {name: heads[name] for name in ("softmax", *args.rows.split(","))}
    worst = dict.fromkeys(heads, math.inf)
    means = {head: [] for head in heads}
    print(f"| {args.splits} splits | " + " | ".join(heads) + " |")
    print("| --- " * (len(heads) + 1) + "|")
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool,
    ):
        place = Path(folder) / "frozen.npz"
        if "fashion_mnist" in names:
            x, y = frozen(args.data)
            np.savez(place, x=x, y=y)
        for name in names:
            for kind in ("raw", "256"):
                jobs = [(heads, name, kind, seed, place) for seed in range(args.splits)]
                found = list(pool.map(split, jobs))
                linear = np.array([row["softmax"] for row in found])
                cells = []
                for head in heads:
                    values = np.array([row[head] for row in found])
                    difference = values - linear
                    half = 1.96 * difference.std(ddof=1) / len(found) ** 0.5
                    worst[head] = min(worst[head], difference.mean())
                    means[head].append(difference.mean())
                    said = f" ({difference.mean():+.1f} ± {half:.1f})" if head != "softmax" else ""
                    cells.append(f"{values.mean():.1f}{said}")
                print(f"| {name}, {kind} | " + " | ".join(cells) + " |", flush=True)
    print("| worst difference | " + " | ".join(f"{worst[head]:+.1f}" for head in heads) + " |")
    print("| mean difference | " + " | ".join(f"{np.mean(means[h]):+.1f}" for h in heads) + " |")


if __name__ == "__main__":
    main()
