"""Small files in the genuine formats of the image sets, written as their publishers wrote them."""

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path

import numpy as np

FINE, COARSE = 100, 20


def images(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def planes(pixels):
    """(N, 32, 32, 3) as CIFAR's rows: all red, all green, all blue."""
    return pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)


def cifar10_parts(per_batch=4):
    x = images(6 * per_batch, 32, 32, 3)
    y = np.arange(len(x)) % 10
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    return {
        name: (x[at : at + per_batch], y[at : at + per_batch])
        for name, at in zip(names, range(0, len(x), per_batch), strict=True)
    }


def old_pickle(value):
    """As Python 2 pickled CIFAR: protocol 2, texts of bytes, numpy's old module names."""
    return pickle.dumps(value, protocol=2).replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )


def cifar10_python(folder: Path):
    folder.mkdir(parents=True)
    parts = cifar10_parts()
    for name, (x, y) in parts.items():
        batch = {
            b"batch_label": b"x",
            b"labels": y.tolist(),
            b"data": planes(x),
            b"filenames": [b"a"],
        }
        (folder / name).write_bytes(old_pickle(batch))
    meta = {b"label_names": [f"kind{label}".encode() for label in range(10)]}
    (folder / "batches.meta").write_bytes(old_pickle(meta))
    return parts


def cifar10_binary(folder: Path):
    folder.mkdir(parents=True)
    parts = cifar10_parts()
    for name, (x, y) in parts.items():
        records = np.concatenate([y[:, None].astype(np.uint8), planes(x)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"kind{n}" for n in range(10)) + "\n\n")
    return parts


def cifar100_parts():
    fine = np.arange(12) * 7
    return {
        "train": (images(12, 32, 32, 3, seed=1), fine, fine % COARSE),
        "test": (images(5, 32, 32, 3, seed=2), fine[:5], fine[:5] % COARSE),
    }


def cifar100_python(folder: Path):
    folder.mkdir(parents=True)
    parts = cifar100_parts()
    for name, (x, fine, coarse) in parts.items():
        batch = {"data": planes(x), "fine_labels": fine.tolist(), "coarse_labels": coarse.tolist()}
        (folder / name).write_bytes(old_pickle(batch))
    names = [f"fine{label}" for label in range(FINE)]
    (folder / "meta").write_bytes(old_pickle({"fine_label_names": names}))
    return parts


def cifar100_binary(folder: Path):
    folder.mkdir(parents=True)
    parts = cifar100_parts()
    for name, (x, fine, coarse) in parts.items():
        head = np.stack([coarse, fine], axis=1).astype(np.uint8)
        (folder / f"{name}.bin").write_bytes(np.concatenate([head, planes(x)], axis=1).tobytes())
    names = "\n".join(f"fine{label}" for label in range(FINE))
    (folder / "fine_label_names.txt").write_text(names)
    return parts


def svhn(folder: Path):
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for seed, (part, count) in enumerate((("train", 20), ("test", 10))):
        x, y = images(count, 32, 32, 3, seed=seed), np.arange(count) % 10
        stored = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
        held = {"X": x.transpose(1, 2, 3, 0), "y": stored}
        savemat(folder / f"{part}_32x32.mat", held, do_compression=True)
        parts[part] = (x, y)
    return parts


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx(folder: Path, *, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for seed, (part, count) in enumerate((("train", 20), ("t10k", 10))):
        x, y = images(count, 28, 28, seed=seed), (np.arange(count) % 10).astype(np.uint8)
        for kind, array in (("images-idx3", x), ("labels-idx1", y)):
            content = idx_bytes(array)
            path = folder / f"{part}-{kind}-ubyte{'.gz' * zipped}"
            path.write_bytes(gzip.compress(content) if zipped else content)
        parts["train" if part == "train" else "test"] = (x, y)
    return parts


def archive(folder: Path, target: Path):
    with tarfile.open(target, "w:gz") as tar:
        tar.add(folder, folder.name)


def png(path: Path, pixels, mode=None):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(np.asarray(pixels))
    (picture.convert(mode) if mode else picture).save(path)


def class_folders(folder: Path, classes=("cat", "dog"), each=5, size=(20, 20), seed=0):
    for number, name in enumerate(classes):
        pixels = images(each, *size, 3, seed=seed + number)
        for index, picture in enumerate(pixels):
            png(folder / name / f"{index:03d}.png", picture)


def encoded(pixels, kind, **options):
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.asarray(pixels)).save(out, format=kind, **options)
    return out.getvalue()
