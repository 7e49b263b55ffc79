"""The scripts in examples/ run and print what their headers say."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from training.processes import torchlace

FOLDER = Path(__file__).parents[1] / "examples"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def expected(text):
    """The indented lines below "It prints about"."""
    lines = text.partition("prints\nabout\n")[2] or text.partition("prints about\n")[2]
    block = re.search(r"(?:^(?:#|) {4,}\S.*\n)+", lines, re.MULTILINE)
    return [line.lstrip("# ") for line in block[0].splitlines()]


def agree(printed, lines):
    """Whether each line was printed: the same words, numbers as near as machines are alike."""
    words = {" ".join(NUMBER.sub("N", line).split()): line for line in printed.splitlines()}
    for line in lines:
        found = words[" ".join(NUMBER.sub("N", line).split())]
        for text, number in zip(NUMBER.findall(line), NUMBER.findall(found), strict=True):
            wanted = float(text.replace(",", ""))
            near = pytest.approx(wanted, rel=0.1, abs=2 if wanted >= 1 else 0.05)
            assert float(number.replace(",", "")) == near, found


@pytest.mark.parametrize("name", ["features", "own_loop", "spectrum", "unknown"])
def test_a_script_prints_what_its_header_says(name, monkeypatch, capsys):
    script = FOLDER / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    agree(capsys.readouterr().out, expected(script.read_text()))


def test_a_grid_prints_what_its_header_says(tmp_path):
    text = (FOLDER / "ridge.yaml").read_text()
    command = re.search(r"^#   torchlace (.*--max-epochs.*)$", text, re.MULTILINE)[1]
    arguments = command.replace("examples", str(FOLDER)).split()
    done = torchlace(*arguments, folder=tmp_path)
    assert done.code == 0, done.err
    agree(done.out, expected(text))


def test_each_example_is_run_by_a_test():
    found = sorted(path.name for path in FOLDER.iterdir() if path.is_file())
    assert found == [
        *("features.py", "own_loop.py", "ridge.yaml", "spectrum.py", "unknown.py"),
        *(
            "whitening_toy.py",
            "wide.yaml",
        ),  # see test_examples.py of detection, and test_library.py
    ]
