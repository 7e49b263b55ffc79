"""Short runs on the digits: good ones, one full of markup, and some that can't be shown."""

import shutil

import numpy as np
from sklearn.datasets import load_digits
from training.rewriting import rewrite_settings

from torchlace.training import TrainConfig, train

MARKUP = ["<b>bold</b>", "<script>window.broken = 1</script>", "a & b", "$x$", '"quoted"']
NAMES = [*MARKUP, "five", "six", "seven", "eight", "</script><img src=x onerror=alert(1)>"]
MARKED = "<i>marked<i>"
SHORT = {"epochs": 3, "batch_size": 64, "lr": 0.003, "device": "cpu"}


def make(folder):
    """Run directories by what they are."""
    made = {}
    for head, seed in (("lace", 0), ("lace", 1), ("softmax", 0)):
        made[f"{head}-{seed}"] = folder / f"{head}-{seed}"
        train(TrainConfig(head=head, seed=seed, **SHORT), made[f"{head}-{seed}"])
    made["marked"] = folder / MARKED
    pack = marked_pack(folder)
    settings = {**SHORT, "epochs": 1, "backbone": "small-cnn"}
    train(TrainConfig(data=str(pack), **settings), made["marked"])
    made["unfinished"] = folder / "unfinished"
    shutil.copytree(made["lace-0"], made["unfinished"])
    (made["unfinished"] / "result.json").unlink()
    made["other version"] = folder / "other version"
    shutil.copytree(made["lace-0"], made["other version"])
    path = made["other version"] / "config.yaml"
    rewrite_settings(path, lambda values: values.update(unheard_of=1))
    return made


def marked_pack(folder):
    """400 digits in colour, their classes named by markup."""
    bunch = load_digits()
    images = np.rint(bunch.images[:400] * 255 / 16).astype(np.uint8)
    images = np.stack([images, 255 - images, images // 2], axis=-1)
    path = folder / "pack.npz"
    np.savez(
        path,
        x_train=images[100:],
        y_train=bunch.target[100:400],
        x_test=images[:100],
        y_test=bunch.target[:100],
        class_names=np.array(NAMES),
    )
    return path
