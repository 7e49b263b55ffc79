"""The digits as files, in every form that `train --data` takes."""

import csv

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

COUNT = 600
TESTED = 100


def digits():
    bunch = load_digits()
    return np.rint(bunch.images[:COUNT] * 255 / 16).astype(np.uint8), bunch.target[:COUNT]


def write(folder, split=False):
    """PNGs in folders of classes, possibly below train and test; (path, label, part) of each."""
    written = []
    for number, (pixels, label) in enumerate(zip(*digits(), strict=True)):
        part = "test" if number < TESTED else "train"
        path = folder / part if split else folder
        path = path / f"digit {label}" / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        written.append((path, f"digit {label}", part))
    return written


def as_folder(place):
    write(place / "pictures")
    return place / "pictures"


def as_split_folder(place):
    write(place / "pictures", split=True)
    return place / "pictures"


def as_csv(place):
    written = write(place / "pictures")
    with (place / "list.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label", "split"])
        rows.writerows([path.relative_to(place), label, part] for path, label, part in written)
    return place / "list.csv"


def as_npz(place):
    images, labels = digits()
    np.savez(
        place / "pack.npz",
        x_train=images[TESTED:],
        y_train=labels[TESTED:],
        x_test=images[:TESTED],
        y_test=labels[:TESTED],
        class_names=np.array([f"digit {label}" for label in range(10)]),
    )
    return place / "pack.npz"


FORMS = {"folder": as_folder, "split folder": as_split_folder, "csv": as_csv, "npz": as_npz}
TRAIN = (
    *("train", "--backbone", "small-cnn", "--epochs", "14", "--batch-size", "32"),
    *("--lr", "0.003", "--json"),
)
