"""Small real and made-up sets."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from torchlace.estimators.samples import Samples


def digits(classes=10):
    """Three quarters of the digits to fit, a quarter to score."""
    X, y = load_digits(n_class=classes, return_X_y=True)
    return train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)


def blobs(seed=0, rows=120, width=5, classes=3, spread=1.0):
    """Correlated features around class means."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(rows) % classes)
    noise = rng.standard_normal((rows, width)) @ rng.standard_normal((width, width))
    return spread * noise + 3 * rng.standard_normal((classes, width))[y], y


def as_samples(X, y, counts=None):
    order = np.argsort(y, kind="stable")
    counts = np.ones(len(y)) if counts is None else counts
    parts = (X[order], y[order], counts[order], counts[order])
    return Samples(*(torch.from_numpy(part) for part in parts))
