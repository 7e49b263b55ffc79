"""Files that claim more than they hold, or hold what nobody asked for."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from data import genuine

from torchlace.data import DataError, check_data, import_data, load_data
from torchlace.data.formats import read_pickle

IMAGES, LABELS = genuine.images(20, 8, 8), np.arange(20) % 2


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def headed(shape, kind="'|u1'", data=bytes(1280), version=1):
    """An array with this header, whatever follows it."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text.encode() + data


def pack(path, images, **others):
    """An .npz with these bytes for its training images."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", images)
        archive.writestr("y_train.npy", npy(LABELS))
        for name, content in others.items():
            archive.writestr(f"{name}.npy", content)
    return path


CLAIMS = {
    "10^18": (headed((10**18,)), r"x_train\.npy says that it is uint8 of shape \(1000000000000000"),
    "10^13": (headed((10**13,)), "holds 1,280 bytes"),
    "10^10 in two": (headed((10**5, 10**5), version=2), "holds 1,280 bytes"),
    "negative": (headed((20, -8, -8)), r"of shape \(20, -8, -8\) and holds"),
    "not whole": (headed((20.0, 8, 8)), "shape is not valid"),
    "no size": (headed((10**18,), "'|V0'", b""), "and holds 0 bytes"),
    "objects": (npy(np.array([object] * 3)), "Python objects, which could run code: save plain"),
    "objects of any size": (headed((10**18,), "'|O'"), "Python objects"),
    "records": (npy(np.zeros(20, [("a", "u1"), ("b", "f4")])), "x_train must be uint8"),
    "numbers": (npy(np.zeros((20, 8, 8))), "x_train must be uint8"),
    "no pixels": (npy(np.zeros((20, 0, 8), np.uint8)), "its images have no pixels"),
    "text": (b"hello", "not a readable .npz"),
    "a header of minuses": (headed("-" * 5000 + "1"), "not a readable .npz"),
    "a header without end": (headed("'''"), "not a readable .npz"),
    "too few": (npy(IMAGES)[:-900], "and holds 380 bytes"),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_an_array_that_is_not_what_it_claims(name, tmp_path):
    content, message = CLAIMS[name]
    with pytest.raises(DataError, match=rf"a\.npz: .*{message}"):
        load_data(pack(tmp_path / "a.npz", content))


def test_fortran_s_order_and_other_entries_are_no_fault(tmp_path):
    path = pack(tmp_path / "a.npz", npy(np.asfortranarray(IMAGES)), file=headed((10**18,)))
    data = load_data(path)
    plain = load_data(pack(tmp_path / "b.npz", npy(IMAGES)))
    assert data.digest == plain.digest


def test_what_is_larger_than_the_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = pack(tmp_path / "a.npz", npy(IMAGES))
    monkeypatch.setattr("os.sysconf", lambda name: 10)  # 100 bytes
    with pytest.raises(DataError, match=r"a\.npz would take .* of memory, this machine has 0"):
        load_data(path)
    monkeypatch.undo()
    assert load_data(path).num_classes == 2
    with pytest.raises(DataError, match=r"a at 9000000 × 9000000 would take .* image_size"):
        load_data(path, size=9_000_000)


def test_damaged_zips_are_sentences(tmp_path):
    whole = pack(tmp_path / "a.npz", npy(IMAGES)).read_bytes()
    encrypted = bytearray(whole)
    encrypted[6] |= 1  # the flag in the entry, and in the directory
    encrypted[whole.index(b"PK\1\2") + 8] |= 1
    unknown = bytearray(whole)
    unknown[whole.index(b"PK\1\2") + 10] = 77
    for content in (b"", b"hello", whole[:300], whole[100:], encrypted, unknown, npy(IMAGES)):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"b\.npz: not a readable \.npz \(.+\); it may be"):
            load_data(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0], "nothing to test on; give every class two images or more"),
        ([1], "nothing to test on"),
        ([0, 1, 2], "nothing to test on"),
        ([0, 0], "only one class"),
    ],
)
def test_too_few_images_in_a_pack(labels, message, tmp_path):
    labels = np.array(labels)
    np.savez(tmp_path / "a.npz", x_train=IMAGES[: len(labels)], y_train=labels)
    with pytest.raises(DataError, match=rf"a\.npz: {message}"):
        load_data(tmp_path / "a.npz")
    (problem,) = check_data(tmp_path / "a.npz").problems
    assert message in problem


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (np.array(["cat", "\udcff"]), r"class_names holds \\xff, which is no text: rename it"),
        (np.array([["cat", "dog"]]), r"must be texts of shape \(classes,\)"),
        (np.array("cat"), "must be texts"),
        (np.array([b"cat", b"dog"]), "must be texts"),
        (np.array([0.5, 1]), "must be texts"),
    ],
)
def test_names_of_classes_are_texts(names, message, tmp_path):
    np.savez(tmp_path / "a.npz", x_train=IMAGES, y_train=LABELS, class_names=names)
    with pytest.raises(DataError, match=message):
        load_data(tmp_path / "a.npz")


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_that_claims_more_than_there_is(zipped, tmp_path):
    genuine.idx(tmp_path / "in", zipped=zipped)
    path = next((tmp_path / "in").glob("train-images*"))
    content = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**31, 2) + bytes(100)
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(DataError, match=r"train-images.* would take .* GiB of memory"):
        import_data(tmp_path / "in", "x", tmp_path)


def test_an_archive_that_unpacks_to_more_than_the_memory(tmp_path, monkeypatch):
    (tmp_path / "data_batch_1").write_bytes(bytes(10_000))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "data_batch_1")
    monkeypatch.setattr("os.sysconf", lambda name: 10)
    with pytest.raises(DataError, match=r"a\.tar\.gz would take .* of memory"):
        import_data(tmp_path / "a.tar.gz", "x", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        # Room for as many objects as the number says, and a tuple that nothing can hash.
        (b"}r\xff\xff\xff\x7f.", "it numbers an object 2147483647"),
        (b"}p99999999999\n.", "it numbers an object 99999999999"),
        (b"})" + b"\x85" * 10**6 + b"K\x01s.", "more than 1000 tuples"),
        (pickle.dumps({("a",): 1}), "holds a tuple where a text is expected"),
        (pickle.dumps({10**5000: 1}), "holds a int where a text is expected"),
    ],
)
def test_pickles_that_would_bring_down_python(content, message):
    with pytest.raises(DataError, match=f"^batch: .*{message}"):
        read_pickle(content, "batch")


def test_what_is_imported_is_a_pack(tmp_path):
    genuine.cifar10_python(tmp_path / "in")
    for changed, message in (
        ({"labels": [0] * 3}, "y_train must be integers of shape"),
        ({"labels": [10**30] * 4}, "labels are not a list of numbers"),
        ({"labels": 7}, "labels are not a list of numbers"),
    ):
        batch = {"labels": [0] * 4, "data": genuine.planes(genuine.images(4, 32, 32, 3)), **changed}
        (tmp_path / "in" / "data_batch_2").write_bytes(genuine.old_pickle(batch))
        with pytest.raises(DataError, match=message):
            import_data(tmp_path / "in", "x", tmp_path)
    assert not (tmp_path / "x.npz").exists()
