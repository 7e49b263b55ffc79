"""Tables that go to a file or another program: no cell is cut, no row takes two lines."""

import os

import numpy as np
import pytest
from cli.inside import torchlace
from cli.pictures import write
from experiments.grids import GRID

from torchlace import heads
from torchlace.data import KNOWN

LONG = "a very long name of a run or folder of images, as people have them " * 4


def without_a_width():
    os.environ.pop("COLUMNS", None)


def piped(*arguments, folder):
    done = torchlace(*arguments, folder=folder, patch=without_a_width)
    assert done.code == 0, done.err
    assert "…" not in done.out
    return done.out


def cells(line):
    return [cell.strip() for cell in line.replace("┃", "│").strip("│").split("│")]


def only(lines, start):
    """The line of the cell ``start``, if there is just one."""
    (line,) = (line for line in lines if cells(line)[0] == start)
    return line


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("piped")
    deep = folder / LONG[:200].replace(" ", "-")
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)
    names = [f"{name} {LONG}" for name in "abc"]
    data = folder / f"{LONG[:150]}.npz"
    np.savez(data, x_train=images, y_train=np.arange(60) % 3, class_names=names)
    command = ("train", "--data", data, "--backbone", "small-cnn", "--epochs", "1")
    assert torchlace(*command, "--run", deep / "run", "--quiet", folder=folder).code == 0
    (folder / "grid.yaml").write_text(GRID)
    write(folder / "pictures")
    return folder


def run_of(place):
    return next(place.glob("a-very*/run")).relative_to(place)


def test_sets_of_images(place):
    lines = piped("data", "list", folder=place).splitlines()
    for name, known in KNOWN.items():
        row = cells(only(lines, name))
        assert row[3] == known.title
        assert row[4] == "embedded" or row[4].startswith("torchlace data fetch ")


def test_a_set_of_images(place):
    data = next(place.glob("*.npz")).name
    for command in ("check", "show"):
        lines = piped("data", command, data, folder=place).splitlines()
        assert lines[0] == data.removesuffix(".npz")
        assert len(cells(only(lines, "digest"))[1]) > 16
        assert cells(only(lines, "images"))[1] == "48 for training, 12 for testing"


def test_heads(place):
    lines = piped("heads", folder=place).splitlines()
    for name in heads.names():
        made = heads.create(name, 512, 10)
        row = cells(only(lines, name))
        assert row[1] == heads.summary(name)
        assert row[2] == made.extra_repr().removeprefix("512, 10").lstrip(", ")


def test_figures_of_runs(place):
    run = str(run_of(place))
    assert len(cells(only(piped("compare", run, folder=place).splitlines(), run))) == 10
    lines = piped("evaluate", run, folder=place).splitlines()
    assert any(line.startswith(f"{run}: 12 test images of ") for line in lines)
    for name in "abc":
        only(lines, f"{name} {LONG}".strip())


def test_predictions(place):
    lines = piped("predict", run_of(place), "pictures/digit 3", folder=place).splitlines()
    row = cells(only(lines, "pictures/digit 3/0003.png"))
    assert all(LONG.strip() in cell for cell in row[1::2])
    assert all(0 <= float(share) <= 100 for share in row[2::2])


def test_experiments(place):
    from torchlace.experiments import experiment_names, load_experiment

    lines = piped("reproduce", "--list", folder=place).splitlines()
    for name in experiment_names():
        assert cells(only(lines, name))[1] == load_experiment(name).title
