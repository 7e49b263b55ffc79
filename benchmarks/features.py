"""Labelled features that several benchmarks use: of pixels, spectra and small trained networks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from torchlace.data import ImageData, Images, load_data, write_pack
from torchlace.models import predict
from torchlace.runs import LoadedRun, load_run
from torchlace.training import Silent, TrainConfig, train

Array = np.ndarray[Any, Any]
# Images that each network sees, and epochs: some minutes of one core.
NETWORKS = {"fashion_mnist": (10_000, 15), "cifar100": (25_000, 12)}


class Split(NamedTuple):
    """What is fitted, and what is scored."""

    features: Array
    labels: Array
    test_features: Array
    test_labels: Array


def embedded(name: str, root: Path, cache: Path) -> Split:
    """Features of a small network for 20,000 training images that it has not seen.

    They are kept in ``cache``, since training takes minutes.
    """
    kept = cache / f"{name}-features.npz"
    if not kept.exists():
        data, (own, epochs) = load_data(name, root), NETWORKS[name]
        order = shuffled(data)
        with tempfile.TemporaryDirectory() as folder:
            # The last hundred are no test of anything: a pack needs some, and these are not used.
            run = trained(
                (data.train, order[:own]),
                (data.train, order[-100:]),
                Path(folder),
                backbone="small-cnn",
                head="softmax",
                lr=0.01,
                schedule="one-cycle",
                epochs=epochs,
                batch_size=128,
                device="cpu",
            )
            rows = order[own : own + 20_000]
            parts = embed(run, data.train, rows), embed(run, data.test)
        labels = data.train.labels[rows].numpy(), data.test.labels.numpy()
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(kept, **Split(parts[0], labels[0], parts[1], labels[1])._asdict())
    with np.load(kept) as file:
        return Split(*(file[field] for field in Split._fields))


def trained(
    own: tuple[Images, Tensor], test: tuple[Images, Tensor], folder: Path, **settings: Any
) -> LoadedRun:
    """A network that `torchlace train` trains on some images with these settings."""
    arrays = {}
    for name, (images, rows) in {"train": own, "test": test}.items():
        pixels = images.batch(rows).permute(0, 2, 3, 1).numpy()
        arrays[f"x_{name}"] = pixels[..., 0] if pixels.shape[3] == 1 else pixels
        arrays[f"y_{name}"] = images.labels[rows].numpy()
    pack = write_pack(folder / "part.npz", arrays)
    config = TrainConfig(data=str(pack), **settings)
    train(config, folder / "run", reporter=Silent())
    return load_run(folder / "run", settings["device"])


def embed(run: LoadedRun, images: Images, rows: Tensor | None = None) -> Array:
    """What the head of a trained network is given for some images, or all."""
    rows = torch.arange(len(images)) if rows is None else rows
    batches = (images.batch(part) for part in rows.split(500))
    found: Array = predict(run.model, batches, run.prepare).features.cpu().numpy()
    return found


def spectra() -> tuple[Array, Array]:
    """The labelled pixels of Indian Pines, 200 bands, 16 classes."""
    from tensorly.datasets import load_indian_pines

    scene = load_indian_pines()
    labels = np.asarray(scene["ticks"][0]).ravel()
    pixels = np.asarray(scene["tensor"]).reshape(len(labels), -1).astype(np.float64)
    return pixels[labels > 0], labels[labels > 0]


def splits(X: Array, y: Array, number: int, test: float = 0.25) -> list[Split]:
    """Random stratified splits."""
    found = []
    for seed in range(number):
        parts = train_test_split(X, y, test_size=test, random_state=seed, stratify=y)
        found.append(Split(parts[0], parts[2], parts[1], parts[3]))
    return found


def shuffled(data: ImageData) -> Tensor:
    return torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))


def split(data: Any, rows: Tensor, features: Callable[[Tensor], Tensor]) -> Split:
    """Features of some training images, and of all test images."""

    def of(images: Tensor) -> Array:
        with torch.inference_mode():
            return torch.cat([features(part) for part in images.split(500)]).numpy()

    return Split(
        of(data.train.images[rows]),
        data.train.labels[rows].numpy(),
        of(data.test.images),
        data.test.labels.numpy(),
    )
