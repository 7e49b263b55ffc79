"""Heads on features that nothing trains: test accuracy over stratified splits, against nn.Linear.

    python benchmarks/fixed_features.py [--splits 50] [--jobs 2] [--sets wine,iris]

Every head gets what `nn.Linear` gets: the same splits (70 % to train on), order, batches, Adam at
1e-3 and 30 epochs. Features are standardised by the training samples; `256` are random ReLU
features of these. Differences are paired by split, with a 95 % interval of their mean.
"""

import argparse
import math
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import StratifiedShuffleSplit

import torchlace as tl
from torchlace.backgrounds import Within

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
}


def _two(x, y, *kept):
    chosen = np.isin(y, kept)
    return x[chosen], (y[chosen] == kept[1]).astype(np.int64)


def at_most(probability, classes):
    """The scale at which the best attainable probability is this one."""
    return (classes - 1) / classes * math.log(probability * (classes - 1) / (1 - probability))


def within(d, classes, ridge=0.1, probability=None):
    scale = "auto" if probability is None else at_most(probability, classes)
    return tl.LACE(d, classes, background=Within(d, classes, ridge=ridge), scale=scale)


HEADS = {
    "linear": tl.Softmax,
    "smoothing .1": tl.Softmax,
    "normface": tl.NormFace,
    "total": tl.LACE,
    "mean only": partial(tl.LACE, covariance=False),
    "cohesion": partial(tl.LACE, background_options={"cohesion": 0.75}),
    "within .1": within,
    "within .03, P .95": partial(within, ridge=0.03, probability=0.95),
    "within .1, P .95": partial(within, probability=0.95),
    "within .3, P .95": partial(within, ridge=0.3, probability=0.95),
    "within .1, P .99": partial(within, probability=0.99),
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


def accuracy(make, x, y, train, test, batch, seed, smoothing):
    torch.manual_seed(seed)
    head = make(x.shape[1], int(y.max()) + 1)
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
    name, kind, seed = job
    torch.set_num_threads(1)
    load, batch = SETS[name]
    x, y = load()
    chosen = StratifiedShuffleSplit(1, train_size=TRAIN, random_state=seed).split(x, y)
    train, test = next(chosen)
    data = features(x, train, kind, seed), torch.tensor(y, dtype=torch.int64)
    train, test = torch.tensor(train), torch.tensor(test)
    return {
        head: accuracy(make, *data, train, test, batch, seed, 0.1 * (head == "smoothing .1"))
        for head, make in HEADS.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sets", default=",".join(SETS))
    args = parser.parse_args()
    worst = dict.fromkeys(HEADS, math.inf)
    means = {head: [] for head in HEADS}
    print(f"| {args.splits} splits | " + " | ".join(HEADS) + " |")
    print("| --- " * (len(HEADS) + 1) + "|")
    with ProcessPoolExecutor(args.jobs) as pool:
        for name in args.sets.split(","):
            for kind in ("raw", "256"):
                rows = list(pool.map(split, [(name, kind, seed) for seed in range(args.splits)]))
                cells = []
                for head in HEADS:
                    values = np.array([row[head] for row in rows])
                    difference = values - np.array([row["linear"] for row in rows])
                    half = 1.96 * difference.std(ddof=1) / len(rows) ** 0.5
                    worst[head] = min(worst[head], difference.mean())
                    means[head].append(difference.mean())
                    said = f" ({difference.mean():+.1f} ± {half:.1f})" if head != "linear" else ""
                    cells.append(f"{values.mean():.1f}{said}")
                print(f"| {name}, {kind} | " + " | ".join(cells) + " |", flush=True)
    print("| worst difference | " + " | ".join(f"{worst[head]:+.1f}" for head in HEADS) + " |")
    print("| mean difference | " + " | ".join(f"{np.mean(means[h]):+.1f}" for h in HEADS) + " |")


if __name__ == "__main__":
    main()
