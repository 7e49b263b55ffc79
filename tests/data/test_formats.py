import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from data import genuine

from torchlace.data import (
    DataError,
    MissingDataError,
    fetch_data,
    import_data,
    load_data,
    read_pack,
    write_pack,
)
from torchlace.data.formats import read_pickle


def same(pack, part, x, y):
    arrays = read_pack(pack)
    np.testing.assert_array_equal(arrays[f"x_{part}"], x)
    np.testing.assert_array_equal(arrays[f"y_{part}"], y)


@pytest.mark.parametrize("write", [genuine.cifar10_python, genuine.cifar10_binary])
def test_cifar10(tmp_path, write):
    parts = write(tmp_path / "in" / "cifar")
    pack = import_data(tmp_path / "in", root=tmp_path)
    assert pack == tmp_path / "cifar10.npz"
    batches = [parts[f"data_batch_{number}"] for number in range(1, 6)]
    x, y = (np.concatenate(each) for each in zip(*batches, strict=True))
    same(pack, "train", x, y)
    same(pack, "test", *parts["test_batch"])
    data = load_data("cifar10", tmp_path)
    assert data.class_names[3] == "kind3"
    assert data.train.shape == (3, 32, 32)
    assert data.mirror
    assert data.train.images[5, 2, 7, 9] == x[5, 7, 9, 2]


@pytest.mark.parametrize("write", [genuine.cifar100_python, genuine.cifar100_binary])
def test_cifar100(tmp_path, write):
    parts = write(tmp_path / "in")
    pack = import_data(tmp_path / "in", root=tmp_path)
    assert pack.name == "cifar100.npz"
    for part, (x, fine, coarse) in parts.items():
        same(pack, part, x, fine)
        assert read_pack(pack)[f"y_{part}_coarse"].tolist() == coarse.tolist()
    assert load_data("cifar100", tmp_path).class_names[7] == "fine7"
    grouped = load_data("cifar100-coarse", tmp_path)
    assert grouped.num_classes == 20
    assert grouped.class_names[-1] == "vehicles_2"
    assert grouped.train.labels.tolist() == parts["train"][2].tolist()
    assert grouped.digest != load_data("cifar100", tmp_path).digest


def test_the_official_archive_is_read_as_it_is(tmp_path):
    genuine.cifar10_python(tmp_path / "cifar-10-batches-py")
    genuine.archive(tmp_path / "cifar-10-batches-py", tmp_path / "cifar-10-python.tar.gz")
    pack = import_data(tmp_path / "cifar-10-python.tar.gz", "one", tmp_path)
    other = import_data(tmp_path / "cifar-10-batches-py", "two", tmp_path)
    assert load_data(pack).digest == load_data(other).digest


def test_svhn(tmp_path):
    parts = genuine.svhn(tmp_path / "in")
    pack = import_data(tmp_path / "in", root=tmp_path)
    for part, (x, y) in parts.items():
        same(pack, part, x, y)
    data = load_data("svhn", tmp_path)
    assert not data.mirror
    assert sorted(data.train.labels.unique().tolist()) == list(range(10))
    again = import_data(tmp_path / "in" / "train_32x32.mat", "again", tmp_path)
    assert load_data(again).digest == data.digest


@pytest.mark.parametrize("zipped", [True, False])
def test_idx(tmp_path, zipped):
    parts = genuine.idx(tmp_path / "in" / "FashionMNIST" / "raw", zipped=zipped)
    with pytest.raises(DataError, match="give name"):
        import_data(tmp_path / "in", root=tmp_path)
    pack = import_data(tmp_path / "in", "mnist", tmp_path)
    for part, (x, y) in parts.items():
        same(pack, part, x, y)
    data = load_data("mnist", tmp_path)
    assert data.train.shape == (1, 28, 28)
    assert not data.mirror


class Attack:
    """What a hostile pickle does: calls anything it likes."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_executes_nothing(tmp_path, protocol):
    genuine.cifar10_python(tmp_path / "in")
    target = tmp_path / "owned"
    evil = pickle.dumps({"data": Attack(target), "labels": []}, protocol=protocol)
    (tmp_path / "in" / "data_batch_3").write_bytes(evil)
    with pytest.raises(DataError, match=r"data_batch_3: refused, the pickle asks for (posix|nt)\."):
        import_data(tmp_path / "in", root=tmp_path)
    assert not target.exists()
    pickle.loads(evil)
    assert target.exists(), "the attack itself must work, or the test shows nothing"


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"ctorchlace.data.packs\nwrite_pack\n.",
        b"c_codecs\ndecode\n.",
        b"cnumpy.core.multiarray\nscalar\n.",
        b"c_codecs\nencode\n(Vx\nVzlib\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
        pickle.dumps({"data": np.array([object()], dtype=object)}),
        pickle.dumps(np.float64(2)),
        pickle.dumps([1, 2]),
        b"",
        b"garbage",
        pickle.dumps({"data": b"x" * 5000})[:-900],
    ],
)
def test_other_pickles_are_refused(content):
    with pytest.raises(DataError, match=r"^batch: "):
        read_pickle(content, "batch")


def test_a_pickle_can_t_change_the_reader_for_the_next(tmp_path):
    # BUILD sets attributes of what a pickle was given: here of the stand-in for numpy.dtype.
    hostile = b"\x80\x02cnumpy\ndtype\nN}X\x05\x00\x00\x00stateK\x07s\x86b."
    with pytest.raises(DataError):
        read_pickle(hostile, "batch")
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for protocol in range(5):
        out = read_pickle(pickle.dumps({"data": array}, protocol=protocol), "batch")["data"]
        np.testing.assert_array_equal(out, array)
    turned = read_pickle(pickle.dumps({"data": np.asfortranarray(array)}, protocol=2), "batch")
    np.testing.assert_array_equal(turned["data"], array)


def cut(path, count=100):
    path.write_bytes(path.read_bytes()[:-count])


@pytest.mark.parametrize(
    ("write", "name", "message"),
    [
        (genuine.cifar10_binary, "data_batch_2.bin", "whole number of images"),
        (genuine.cifar100_binary, "test.bin", "whole number of images"),
        (genuine.cifar10_python, "data_batch_2", "not a readable pickle"),
        (genuine.svhn, "test_32x32.mat", "not SVHN's .mat"),
        (genuine.idx, "train-images-idx3-ubyte.gz", "not a readable gzip"),
    ],
)
def test_a_file_that_is_cut_off_is_named(tmp_path, write, name, message):
    write(tmp_path / "in")
    cut(tmp_path / "in" / name)
    with pytest.raises(DataError, match=f"{name}: .*{message}"):
        import_data(tmp_path / "in", "x", tmp_path)
    assert not list(tmp_path.glob("*.npz"))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (genuine.cifar10_binary, "data_batch_4.bin"),
        (genuine.cifar10_python, "test_batch"),
        (genuine.svhn, "test_32x32.mat"),
    ],
)
def test_a_file_that_is_missing_is_named(tmp_path, write, name):
    write(tmp_path / "in")
    (tmp_path / "in" / name).unlink()
    with pytest.raises(DataError, match=f"{name} is missing"):
        import_data(tmp_path / "in", root=tmp_path)


def test_idx_that_lies_about_its_size(tmp_path):
    genuine.idx(tmp_path / "in", zipped=False)
    cut(tmp_path / "in" / "t10k-images-idx3-ubyte")
    with pytest.raises(DataError, match="says 10 × 28 × 28, holds 7740 bytes"):
        import_data(tmp_path / "in", "x", tmp_path)
    (tmp_path / "in" / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match="missing: x_test"):
        import_data(tmp_path / "in", "x", tmp_path)


def test_several_sets_in_one_folder(tmp_path):
    genuine.cifar10_python(tmp_path / "in" / "a")
    genuine.svhn(tmp_path / "in" / "b")
    with pytest.raises(DataError, match="several sets"):
        import_data(tmp_path / "in", root=tmp_path)


def test_an_import_overwrites_nothing_unasked(tmp_path):
    genuine.svhn(tmp_path / "in")
    import_data(tmp_path / "in", root=tmp_path)
    with pytest.raises(DataError, match="exists already"):
        import_data(tmp_path / "in", root=tmp_path)
    import_data(tmp_path / "in", root=tmp_path, overwrite=True)
    for name in ("../up", "digits", "cifar100-coarse", "a b"):
        with pytest.raises(DataError, match="can't be called"):
            import_data(tmp_path / "in", name, tmp_path)
    with pytest.raises(MissingDataError):
        import_data(tmp_path / "nothing", root=tmp_path)


def test_a_pack_is_never_half_written(tmp_path, monkeypatch):
    path = write_pack(tmp_path / "a.npz", {"x_train": np.zeros((2, 4, 4), np.uint8)})
    before = path.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(DataError, match=r"a\.npz could not be written \(No space"):
        write_pack(path, {"x_train": np.ones((2, 4, 4), np.uint8)})
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]


WRITERS = {
    "cifar10": genuine.cifar10_python,
    "cifar100": genuine.cifar100_python,
    "svhn": genuine.svhn,
    "fashion_mnist": genuine.idx,
}


@pytest.fixture
def internet(tmp_path, monkeypatch):
    """A stand-in for the internet: torchvision's download finds genuine small files there."""
    served, asked = tmp_path / "served", []
    for name, write in WRITERS.items():
        write(served / name)
    genuine.archive(served / "cifar10", served / "cifar-10-python.tar.gz")
    genuine.archive(served / "cifar100", served / "cifar-100-python.tar.gz")

    def download_url(url, root, filename, md5):
        assert url.startswith("http")
        assert len(md5) == 32
        asked.append(url)
        os.makedirs(root, exist_ok=True)
        shutil.copy(next(served.rglob(filename)), root)

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    return asked


@pytest.mark.parametrize("name", WRITERS)
def test_fetch(tmp_path, internet, name):
    root = tmp_path / "root"
    pack = fetch_data(name, root)
    assert [each.name for each in root.iterdir()] == [f"{name}.npz"]
    data = load_data(name, root)
    assert len(data.train) >= 12
    assert data.mirror == (name != "svhn")
    count = len(internet)
    assert fetch_data(name, root) == pack
    assert len(internet) == count


def test_coarse_labels_are_fetched_with_the_fine(tmp_path, internet):
    assert fetch_data("cifar100-coarse", tmp_path / "root").name == "cifar100.npz"


@pytest.mark.parametrize(
    "error", [OSError("no route"), RuntimeError("File not found or corrupted.")]
)
def test_without_internet_the_error_says_what_to_do(tmp_path, monkeypatch, error):
    def download_url(*_, **__):
        raise error

    monkeypatch.setattr("torchvision.datasets.utils.download_url", download_url)
    with pytest.raises(DataError, match=r"torchlace data import FOLDER --name svhn"):
        fetch_data("svhn", tmp_path / "root")
    assert not list(tmp_path.rglob("*.npz"))


def test_unknown_names_are_answered_with_known_ones(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        fetch_data("cifar", tmp_path)
    with pytest.raises(MissingDataError, match="torchlace data fetch cifar10"):
        load_data("cifar10", tmp_path)
    with pytest.raises(MissingDataError, match="did you mean 'cifar10'"):
        load_data("cifar11", tmp_path)


def test_a_pack_without_test_images_is_split(tmp_path):
    x, y = genuine.images(50, 6, 7), np.arange(50) % 5
    path = write_pack(tmp_path / "some.npz", {"x_train": x, "y_train": y})
    data = load_data(path)
    assert (len(data.train), len(data.test)) == (40, 10)
    assert torch.bincount(data.test.labels).tolist() == [2] * 5
    assert data.size == (6, 7)
    assert load_data("some", tmp_path).digest == data.digest
    assert load_data(path, seed=1).digest != data.digest
    small = load_data(path, size=4)
    assert small.size == (4, 4)


U8 = np.uint8


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "no array x_train"),
        ({"x_train": np.zeros((2, 4, 4), U8)}, "no array y_train"),
        ({"x_train": np.zeros((2, 4, 4)), "y_train": np.zeros(2, U8)}, "must be uint8"),
        ({"x_train": np.zeros((2, 3, 9, 9), U8), "y_train": np.zeros(2, U8)}, "channels first"),
        ({"x_train": np.zeros((2, 4, 4), U8), "y_train": np.zeros(3, U8)}, "shape \\(2,\\)"),
        ({"x_train": np.zeros((2, 4, 4), U8), "y_train": np.zeros(2)}, "must be integers"),
        ({"x_train": np.zeros((2, 4, 4), U8), "y_train": np.array([0, -1])}, "label -1"),
        ({"x_train": np.zeros((0, 4, 4), U8), "y_train": np.zeros(0, U8)}, "empty"),
        ({"x_train": np.zeros((2, 4, 4), U8), "y_train": np.zeros(2, U8)}, "only one class"),
        ({"x_train": np.zeros((2, 4, 4), U8), "y_train": np.array([0, 10**7])}, "label 10000000"),
        (
            {
                "x_train": np.zeros((4, 4, 4), U8),
                "y_train": np.array([0, 1, 0, 1]),
                "class_names": np.array(["cat"]),
            },
            "labels go up to 1, but there are only 1 class_names",
        ),
    ],
)
def test_what_is_not_a_pack(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=message):
        load_data(tmp_path / "a.npz")


@pytest.mark.parametrize("at", range(0, 400, 20))
def test_a_compressed_pack_that_is_damaged(at, tmp_path):
    x, y = genuine.images(20, 8, 8) // 32, np.arange(20) % 2
    np.savez_compressed(tmp_path / "a.npz", x_train=x, y_train=y)
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[60 + at : 70 + at] = bytes(range(240, 250))
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"not a readable \.npz"):
        load_data(tmp_path / "a.npz")


def test_packs_hold_no_pickles(tmp_path):
    np.savez(tmp_path / "a.npz", x_train=np.array([Attack(tmp_path / "owned")], dtype=object))
    with pytest.raises(DataError, match=r"not a readable \.npz .*: save plain arrays of numbers"):
        load_data(tmp_path / "a.npz")
    assert not (tmp_path / "owned").exists()
    (tmp_path / "b.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(DataError, match="cut off"):
        load_data(tmp_path / "b.npz")
