import errno
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from data import genuine
from PIL import Image
from typer.testing import CliRunner

from torchlace.cli.data import app
from torchlace.data import (
    KNOWN,
    DataError,
    MissingDataError,
    channel_statistics,
    check_data,
    contact_sheet,
    import_data,
    load_data,
    write_pack,
)

REAL = Path(os.environ.get("TORCHLACE_DATA", "/nowhere"))


def pack(path, classes=3, each=10, **changes):
    x, y = genuine.images(classes * each, 8, 8), np.arange(classes * each) % classes
    arrays = {
        "x_train": x,
        "y_train": y,
        "x_test": genuine.images(classes * 2, 8, 8, seed=9),
        "y_test": np.arange(classes * 2) % classes,
    }
    return write_pack(path, {**arrays, **changes})


def test_digits_are_known():
    report = check_data("digits")
    assert report.ok
    assert (report.train, report.test, report.shape) == (1438, 359, (1, 8, 8))
    data = load_data("digits")
    assert data.digest in KNOWN["digits"].digests
    assert data.train.images.max() == 255
    assert load_data("digits", seed=3, test_fraction=0.5).digest == data.digest


def test_an_unknown_set_that_is_well(tmp_path):
    report = check_data(pack(tmp_path / "a.npz"))
    assert report.ok
    assert report.identity is None
    assert report.train_counts == (10, 10, 10)
    assert report.to_dict()["ok"]


def test_duplicates_between_train_and_test(tmp_path):
    x = genuine.images(6, 8, 8, seed=9)
    x[2] = genuine.images(30, 8, 8)[4]
    report = check_data(pack(tmp_path / "a.npz", x_test=x))
    assert report.duplicates == 1
    assert report.problems == ["1 of 6 test images are training images too"]


def test_classes(tmp_path):
    y = np.zeros(30, int)
    y[:2] = 2
    report = check_data(pack(tmp_path / "a.npz", y_train=y))
    assert report.problems == ["no training images of 1"]
    y[2] = 1
    report = check_data(pack(tmp_path / "a.npz", y_train=y))
    assert report.ok
    assert report.notes == ["unbalanced: 1 to 27 training images a class"]


def test_a_set_that_is_not_what_its_name_says(tmp_path):
    report = check_data(pack(tmp_path / "cifar10.npz"))
    assert not report.ok
    text = "; ".join(report.problems)
    assert "training images: 30, the official set has 50000" in text
    assert "channels, height, width: (1, 8, 8), the official set has (3, 32, 32)" in text


def test_a_broken_pack_is_reported_and_a_missing_one_an_error(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK")
    report = check_data("a", tmp_path)
    assert not report.ok
    assert "not a readable .npz" in report.problems[0]
    with pytest.raises(MissingDataError):
        check_data("b", tmp_path)


def test_folders_are_checked(tmp_path):
    genuine.class_folders(tmp_path / "a", each=10)
    assert check_data(tmp_path / "a").ok
    first = next((tmp_path / "a" / "cat").iterdir())
    for number in range(5):
        (tmp_path / "a" / "cat" / f"copy{number}.png").write_bytes(first.read_bytes())
    report = check_data(tmp_path / "a")
    assert report.duplicates + len(report.notes) > 0
    (first.parent / "bad.png").touch()
    assert "bad.png: empty file" in check_data(tmp_path / "a").problems[0]
    assert any("bad.png" in note for note in check_data(tmp_path / "a", skip_bad=True).notes)


def test_an_imported_folder_is_the_folder(tmp_path):
    genuine.class_folders(tmp_path / "pets", ("ant", "bee"), each=10)
    path = import_data(tmp_path / "pets", root=tmp_path)
    assert path.name == "pets.npz"
    packed, loose = load_data("pets", tmp_path), load_data(tmp_path / "pets")
    assert packed.digest == loose.digest
    assert packed.class_names == loose.class_names
    rows = "".join(f"pets/{n}/{i:03d}.png,{n}\n" for n in ("ant", "bee") for i in range(10))
    (tmp_path / "list.csv").write_text("path,label\n" + rows)
    assert load_data(import_data(tmp_path / "list.csv", root=tmp_path)).digest == packed.digest


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_a_contact_sheet_shows_every_class(tmp_path, channels):
    x = np.zeros((6, 16, 12, channels), np.uint8)
    x[1::2] = 255
    names = np.array(["dark", "a name that is far too long to be written in full, so it isn't"])
    path = write_pack(
        tmp_path / "a.npz", {"x_train": x, "y_train": np.arange(6) % 2, "class_names": names}
    )
    sheet = contact_sheet(load_data(path), tmp_path / "out" / "a.png")
    picture = Image.open(sheet).convert("L")
    assert picture.width < 1500
    # Two black images (the third is held out), 64 × 48 as shown, with nothing drawn over them.
    assert (np.asarray(picture) == 0).sum() >= 2 * 64 * 48


def cli(*words, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from torchlace.cli.data import app; app()", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160", **environment},
        timeout=120,
    )


def test_the_command_line(tmp_path):
    genuine.svhn(tmp_path / "in")
    done = cli("import", tmp_path / "in", "--root", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "svhn.npz" in done.stdout
    wrong = cli("check", "svhn", TORCHLACE_DATA=str(tmp_path))
    assert wrong.returncode == 1
    assert "training images: 20, the official set has 73257" in wrong.stderr


def test_errors_of_the_command_line_are_one_plain_line(tmp_path):
    done = cli("fetch", "digits", "--root", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: digits come with scikit-learn: there is nothing to fetch\n"


def test_list_and_show(tmp_path):
    genuine.svhn(tmp_path / "in")
    import_data(tmp_path / "in", root=tmp_path)
    pack(tmp_path / "mine.npz")
    run = partial(CliRunner().invoke, app, env={"COLUMNS": "160"})
    listed = run(["list", "--root", str(tmp_path)])
    assert "embedded" in listed.stdout
    assert "mine" in listed.stdout
    assert "torchlace data fetch cifar10" in listed.stdout
    names = [each["name"] for each in json.loads(run(["list", "--json"]).stdout)["sets"]]
    assert names[0] == "digits"
    out = tmp_path / "s.png"
    shown = run(["show", "svhn", "--root", str(tmp_path), "--out", str(out)])
    assert "20 for training, 10 for testing" in shown.stdout
    assert out.is_file()
    facts = json.loads(run(["show", "digits", "--out", str(out), "--json"]).stdout)
    assert facts["train"] == 1438
    report = json.loads(run(["check", "digits", "--json"]).stdout)
    assert report["ok"]
    for words in (["check", "nothing"], ["show", "nothing"], ["import", str(tmp_path / "nothing")]):
        done = run([*words, "--root", str(tmp_path)])
        assert done.exit_code == 1
        assert done.stderr.startswith("error: no ")


def test_the_layer_is_cheap_to_import():
    heavy = ["torchvision", "sklearn", "scipy", "PIL", "matplotlib", "pandas"]
    code = f"import sys, torchlace.data; sys.exit(str([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() == "[]"


STATISTICS = {
    "fashion_mnist": [0.2860],
    "cifar10": [0.4914, 0.4822, 0.4465],
    "svhn": [0.4377, 0.4438, 0.4728],
    "cifar100": [0.5071, 0.4865, 0.4409],
    "cifar100-coarse": [0.5071, 0.4865, 0.4409],
}


@pytest.mark.parametrize("name", STATISTICS)
def test_the_real_sets(name):
    if not (REAL / f"{KNOWN[name].pack}.npz").is_file():
        pytest.skip(f"TORCHLACE_DATA has no {KNOWN[name].pack}.npz")
    report = check_data(name)
    assert report.ok, report.problems
    assert report.identity is not None
    data = load_data(name)
    assert data.mirror == (name != "svhn")
    mean, _ = channel_statistics(data.train)
    torch.testing.assert_close(mean, torch.tensor(STATISTICS[name]), atol=1e-4, rtol=0)


def test_a_picture_or_pack_that_can_t_be_written_is_named_and_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    data, x = load_data("digits"), np.zeros((4, 8, 8), np.uint8)
    (tmp_path / "old.png").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", refuse)
    for write, path in (
        (lambda path: contact_sheet(data, path), tmp_path / "old.png"),
        (lambda path: contact_sheet(data, path), tmp_path / "new.png"),
        (lambda path: write_pack(path, {"x_train": x}), tmp_path / "new.npz"),
    ):
        said = rf"{path.name} could not be written \(No space left on device\); .* Make room"
        with pytest.raises(DataError, match=said):
            write(path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]
