"""Files and names from anywhere: no foreign decoder runs, nothing reaches the terminal raw."""

import csv
import io
import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli.inside import torchlace
from data import genuine
from PIL import Image
from training import processes
from training.processes import Command, fresh

from torchlace.cli import predict

# What colours, retitles, beeps, breaks the line, turns it around, and is no text at all.
ODD = ("\x1b[31mcat", "a\nerror: dog", "\u202ereversed", "[bold]:dog:\x9b\x7f")
FILES = ("\x1b]0;title\x07.png", 'new\nline, "quoted"\r.png', "caf\udce9 \u202e.png", "plain.png")
RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\udc80-\udcff]")
UNREADABLE = "not an image that Pillow can read; convert it to JPEG or PNG"


def pictures(folder, classes=ODD, files=FILES):
    pixels = iter(genuine.images(len(classes) * len(files), 8, 8))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for file in files:
            Image.fromarray(next(pixels)).save(folder / name / file, format="PNG")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign")
    pictures(folder / "odd")
    command = ("train", "--data", "odd", "--backbone", "small-cnn", "--epochs", "1")
    done = torchlace(*command, "--run", "run", folder=folder)
    assert done.code == 0, done.err
    assert torchlace("report", "run", "--method", "pca", folder=folder).code == 0
    return folder


@pytest.fixture(scope="module")
def decoy(tmp_path_factory):
    """A gs before all others in PATH that leaves a mark where it is started."""
    folder = tmp_path_factory.mktemp("decoy")
    (folder / "gs").write_text(f"#!/bin/sh\ntouch {folder}/mark\n")
    (folder / "gs").chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    Image.new("RGB", (8, 8)).save(folder / "a.png", format="EPS")
    load = "import sys; from PIL import Image; Image.open(sys.argv[1]).load()"
    fresh(folder / "a.png", folder=folder, command=("-c", load), **path)
    assert (folder / "mark").exists(), "Pillow itself must start it, or the test shows nothing"
    (folder / "mark").unlink()
    return folder, path


@pytest.mark.parametrize("kind", ["EPS", "PCX"])
@pytest.mark.parametrize(
    "command",
    [
        ("train", "--data", "bad", "--epochs", "1", "--run", "bad-run", "--backbone", "small-cnn"),
        ("predict", "run", "bad"),
        ("data", "check", "bad"),
        ("data", "show", "bad", "--out", "sheet.png"),
        ("data", "import", "bad", "--name", "bad", "--root", "."),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_file_is_decoded_as_one_of_the_formats_or_not_at_all(command, kind, place, decoy):
    folder, path = decoy
    shutil.rmtree(place / "bad", ignore_errors=True)
    pictures(place / "bad", ("cat", "dog"), ("1.png", "2.png", "3.png"))
    Image.new("RGB", (8, 8)).save(place / "bad" / "cat" / "2.png", format=kind)
    done = processes.torchlace(*command, folder=place, environment=path)
    assert done.code == 1
    assert f"bad/cat/2.png: {UNREADABLE}\n" in done.err
    assert "Traceback" not in done.err
    assert not (folder / "mark").exists()


def test_pictures_of_a_report_are_decoded_as_one_of_the_formats(place, decoy, tmp_path):
    folder, path = decoy
    shutil.copytree(place / "run", tmp_path / "run")
    odd = place / "odd" / ODD[0] / "plain.png"
    before = odd.read_bytes()
    try:
        Image.new("RGB", (8, 8)).save(odd, format="EPS")
        command = ("report", "run", "--method", "pca")
        done = processes.torchlace(*command, folder=tmp_path, environment=path)
    finally:
        odd.write_bytes(before)
    assert UNREADABLE in done.err
    assert not RAW.search(done.err)
    assert not (folder / "mark").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("data", "check", "odd"),
        ("data", "show", "odd", "--out", "sheet.png"),
        ("data", "import", "odd", "--name", "odd", "--root", ".", "--overwrite"),
        ("train", "--data", "odd", "--backbone", "small-cnn", "--epochs", "1", "--run", "new"),
        ("evaluate", "run"),
        ("compare", "run"),
        ("predict", "run", "odd"),
        ("report", "run", "--method", "pca"),
        ("export", "run"),
        ("config", "run"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_names_are_shown_and_never_acted_upon(command, place):
    done = torchlace(*command, folder=place)
    assert done.code == 0, done.err
    assert not RAW.search(done.out + done.err)
    assert not re.search("^error:", done.out + done.err, re.MULTILINE)
    if command[0] in ("evaluate", "predict"):
        for name in (r"\x1b[31mcat", r"a\nerror: dog", r"\u202ereversed", r"[bold]:dog:\x9b\x7f"):
            assert name in done.out
    if command[0] == "predict":
        assert r"odd/\x1b[31mcat/caf\xe9 \u202e.png" in done.out


def test_json_and_csv_have_the_true_names(place):
    expected = {f"odd/{name}/{file}" for name in ODD for file in FILES}
    every = ("--top", str(len(ODD)))
    found = torchlace("predict", "run", "odd", *every, "--json", folder=place)
    assert found.out.isascii()
    assert {each["image"] for each in found.json()} == expected
    assert {one["class"] for each in found.json() for one in each["classes"]} == set(ODD)
    command = Command("predict", "run", "odd", *every, "--csv", folder=place)
    command.process.join()
    text = command.out.read_bytes().decode(errors="surrogateescape")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert {row["image"] for row in rows} == expected
    assert {row["class"] for row in rows} == set(ODD)
    assert len(rows) == len(ODD) * len(expected)
    facts = torchlace("data", "show", "odd", "--out", "a.png", "--json", folder=place).json()
    assert set(facts["class_names"]) == set(ODD)


def test_csv_on_a_terminal_is_shown_like_all_else(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    classes = [{"class": ODD[1], "probability": 0.5}]
    predict._print_csv([{"image": FILES[0], "classes": classes}])
    lines = sys.stdout.getvalue().splitlines()
    assert lines[1:] == [r'\x1b]0;title\x07.png,1,"a\nerror: dog",0.500000']


def in_ascii():
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="ascii", errors="strict")


@pytest.mark.parametrize("command", [("predict", "run", "odd"), ("evaluate", "run"), ("heads",)])
def test_an_encoding_that_lacks_characters_is_no_error(command, place):
    done = torchlace(*command, folder=place, patch=in_ascii)
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("data", "check", "no\x1b[31m\nerror: one"), r"error: no data 'no\x1b[31m\nerror: one'"),
        (("evaluate", "no\x1b[31m\nerror: one"), r"error: no\x1b[31m\nerror: one holds no run"),
        (("predict", "run", "caf\udce9\x07.png"), r"error: there is no caf\xe9\x07.png"),
        (("data", "check", "a", "b\x1b[31m"), r"b\x1b[31m"),
        (("no\x1b[31m\nerror: one",), r"no\x1b[31m\nerror: one"),
        (("train", "--no\x1b[31m\x07"), r"--no\x1b[31m\x07"),
        (("train", "--run", "caf\udce9"), r"error: --run caf\xe9: this name is not UTF-8; give"),
    ],
)
def test_arguments_are_shown_in_errors_and_never_acted_upon(command, shown, place):
    done = torchlace(*command, folder=place)
    assert done.code in (1, 2)
    assert shown in done.err
    assert not RAW.search(done.err)
    assert len(re.findall("^error:", done.err, re.MULTILINE)) <= 1


def test_a_class_folder_that_is_no_text_is_refused_where_it_is_listed(tmp_path):
    pictures(tmp_path / "pets", ("cat", "caf\udce9"))
    for command in (("train", "--data"), ("data", "show")):
        done = torchlace(*command, "pets", folder=tmp_path)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert r"error: pets: the name of the class folder caf\xe9 is not UTF-8" in done.err
        assert done.err.endswith("rename it\n")


def test_warnings_are_shown_like_all_else(tmp_path):
    script = "import warnings; warnings.warn(chr(27) + '[31m' + chr(0x202e))"
    script = f"from torchlace.cli.common import prepare_output; prepare_output(); {script}"
    done = fresh(folder=tmp_path, command=("-c", script))
    assert r"UserWarning: \x1b[31m\u202e" in done.err
    assert not RAW.search(done.err)


def broken():
    raise RuntimeError("\x1b[31m\x9b")


def break_heads():
    from torchlace import heads

    heads.names = broken


def test_a_traceback_is_shown_like_all_else(tmp_path):
    done = processes.torchlace("heads", folder=tmp_path, patch=break_heads)
    assert (done.code, done.out) == (1, "")
    assert r"RuntimeError: \x1b[31m\x9b" in done.err
    assert not RAW.search(done.err)


def test_a_pack_with_one_image_or_with_claims_is_a_sentence(tmp_path):
    np.savez(tmp_path / "one.npz", x_train=genuine.images(1, 8, 8), y_train=np.array([0]))
    text = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000000000,), }\n"
    head = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode()
    with zipfile.ZipFile(tmp_path / "claims.npz", "w") as archive:
        archive.writestr("x_train.npy", head + bytes(100))
    for name, said in (("one", "nothing to test on; give every"), ("claims", "holds 100 bytes")):
        for command in (("train", "--data"), ("data", "show"), ("data", "check")):
            done = torchlace(*command, f"{name}.npz", folder=tmp_path)
            assert (done.code, done.err.count("\n")) == (1, 1)
            assert re.match(rf"(error|problem): {name}\.npz: .*{said}", done.err)
    assert not list(Path(tmp_path).glob("runs/*/config.yaml"))
    assert json.loads(torchlace("data", "check", "one.npz", "--json", folder=tmp_path).out)
