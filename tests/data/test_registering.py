"""Data sets of one's own, found by name wherever a source is named."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from data import genuine
from PIL import Image
from typer.testing import CliRunner

from torchlace.cli.data import app
from torchlace.data import (
    DataError,
    FileImages,
    ImageData,
    MemoryImages,
    MissingDataError,
    absolute_source,
    check_data,
    check_source,
    data_names,
    fetch_data,
    import_data,
    load_data,
    near_sources,
    register,
    write_pack,
)
from torchlace.data.sources import LOADERS
from torchlace.experiments import load_experiment
from torchlace.experiments.cells import Task
from torchlace.experiments.grid import require_same_data
from torchlace.training import Run, TrainConfig, train


def arrays(each=20, classes=2, seed=0):
    """Sets of which every class is as bright as its label says."""
    labels = np.arange(each * classes) % classes
    noise = genuine.images(len(labels), 8, 8, seed=seed) // 16
    return noise + (labels * 100).astype(np.uint8)[:, None, None], labels


def parts(each=20):
    (x, y), (x_test, y_test) = arrays(each), arrays(5, seed=1)
    return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}


def images(each=20, channels=1, classes=2):
    x, y = arrays(each, classes)
    tensor = torch.from_numpy(x)[:, None].expand(-1, channels, -1, -1)
    return MemoryImages(tensor, torch.from_numpy(y))


@pytest.fixture
def mine(monkeypatch):
    """Registers a set by the name mine, and forgets it after the test."""
    monkeypatch.setattr(LOADERS, "_known", dict(LOADERS._known))
    return lambda given, name="mine": register(name, given if callable(given) else lambda: given)


def test_arrays(mine):
    mine({**parts(), "class_names": ["dark", "bright"]})
    data = load_data("mine")
    assert (data.name, data.class_names) == ("mine", ("dark", "bright"))
    assert (len(data.train), len(data.test), data.drawn) == (40, 10, False)
    assert data.train.shape == (1, 8, 8)
    assert torch.equal(data.train.images[:, 0], torch.from_numpy(parts()["x_train"]))
    assert data.mirror


def test_arrays_are_the_pack_of_the_same_arrays(mine, tmp_path):
    mine(parts())
    pack = load_data(write_pack(tmp_path / "a.npz", parts()))
    for options in ({}, {"size": 6}):
        data = load_data("mine", **options)
        same = load_data(tmp_path / "a.npz", **options)
        assert data.digest == same.digest
        assert torch.equal(data.test.images, same.test.images)
    assert data.class_names == pack.class_names == ("0", "1")


def test_training_arrays_alone_are_split(mine):
    x, y = arrays()
    mine({"x_train": x, "y_train": y})
    data = load_data("mine")
    assert (len(data.train), len(data.test), data.drawn) == (32, 8, True)
    assert len(load_data("mine", test_fraction=0.5).test) == 20
    assert load_data("mine", seed=1).digest != data.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda array: torch.from_numpy(array),
        lambda array: array.tolist() if array.ndim == 1 else array,
        lambda array: array[::-1][::-1],
        lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
        lambda array: np.asfortranarray(array),
    ],
    ids=["tensors", "lists", "turned around", "read-only", "columns first"],
)
def test_whatever_becomes_arrays(change, mine):
    mine({name: change(array) for name, array in parts().items()})
    digest = load_data("mine").digest
    mine(parts(), "plain")
    assert digest == load_data("plain").digest


def test_a_set_that_is_made_elsewhere(mine):
    given = ImageData("other", images(), images(5), ("dark", "bright"), mirror=False)
    mine(given)
    data = load_data("mine")
    assert (data.name, data.mirror, len(data.digest)) == ("mine", False, 32)
    mine(dataclasses.replace(given, digest="my own"), "told")
    assert load_data("told").digest == "my own"
    assert load_data("told", size=8).digest == "my own"
    small = load_data("told", size=4)
    assert (small.size, small.num_classes) == ((4, 4), 2)
    assert small.digest == load_data("mine", size=4).digest
    mine(dataclasses.replace(given, class_names=()), "plain")
    assert load_data("plain").class_names == ("0", "1")


def test_another_source_under_a_name(mine, tmp_path):
    genuine.class_folders(tmp_path / "pets", ("cat", "dog"), each=5)
    mine(lambda: load_data(tmp_path / "pets", memory_limit=0))
    data = load_data("mine")
    assert isinstance(data.train, FileImages)
    assert (data.name, data.digest) == ("mine", load_data(tmp_path / "pets", memory_limit=0).digest)
    assert load_data("mine", size=10).train.images.shape[1:] == (3, 10, 10)
    mine(lambda: load_data(tmp_path / "nothing"), "lost")
    with pytest.raises(MissingDataError, match="nothing"):
        load_data("lost")


def test_images_of_a_class_of_ones_own(mine):
    class Squares:
        labels = torch.arange(20) % 2
        shape = (1, 6, 6)

        def __len__(self):
            return 20

        def batch(self, indices):
            shade = (self.labels[indices] * 200).to(torch.uint8)
            return shade.view(-1, 1, 1, 1).repeat(1, *self.shape)

    mine(ImageData("squares", Squares(), Squares(), ("dark", "bright")))
    data = load_data("mine")
    held = load_data("mine", size=6)
    assert (len(data.digest), data.size) == (32, (6, 6))
    assert check_data("mine").duplicates == 20
    assert held.digest == data.digest


U8 = np.uint8
WRONG = {
    "nothing": (None, "must return an ImageData or a dictionary of .*; it returns NoneType"),
    "a tuple": (tuple(parts().values()), "it returns tuple"),
    "other names": ({**parts(), "class_name": ["a", "b"]}, "it returns class_name, x_test"),
    "no labels": ({"x_train": parts()["x_train"]}, "no array y_train"),
    "floats": ({**parts(), "x_train": np.zeros((40, 8, 8))}, "x_train must be uint8"),
    "channels first": (
        {**parts(), "x_train": np.zeros((40, 3, 8, 8), U8)},
        r"channels first; they go last: x\.transpose",
    ),
    "labels of floats": ({**parts(), "y_train": np.zeros(40)}, "y_train must be integers"),
    "few labels": ({**parts(), "y_train": np.zeros(3, int)}, r"integers of shape \(40,\)"),
    "negative labels": ({**parts(), "y_train": np.full(40, -1)}, "holds the label -1"),
    "other sizes": ({**parts(), "x_test": np.zeros((10, 9, 9), U8)}, "test images have shape"),
    "one class": (
        {**parts(), "y_train": np.zeros(40, int), "y_test": np.zeros(10, int)},
        "only one class",
    ),
    "few names": ({**parts(), "class_names": ["dark"]}, "only 1 class_names"),
    "names of numbers": ({**parts(), "class_names": [0.5, 1]}, "class_names must be texts"),
    "no test images": ({"x_train": np.zeros((2, 8, 8), U8), "y_train": [0, 1]}, "nothing to test"),
    "tensors for images": (
        ImageData("a", torch.zeros(4, 1, 8, 8), images(), ("a", "b")),
        r"train must be MemoryImages, FileImages or a class with .* got Tensor",
    ),
    "other sizes of images": (
        ImageData("a", images(), images(channels=3), ("a", "b")),
        r"batch of one image of test must be uint8 of shape \(1, 1, 8, 8\), got .* \(1, 3, 8, 8\)",
    ),
    "no images": (ImageData("a", images(), images(0), ("a", "b")), "test.labels is empty"),
    "negative labels of images": (
        ImageData("a", MemoryImages(images().images, images().labels - 1), images(), ("a", "b")),
        "train.labels holds the label -1",
    ),
    "more labels than names": (
        ImageData("a", images(classes=3), images(), ("a", "b")),
        "labels go up to 2, but there are only 2 class_names",
    ),
    "one class of images": (ImageData("a", *[images(classes=1)] * 2, ("a",)), "only one class"),
    "names that are no texts": (
        ImageData("a", images(), images(), ("a", "\udcff")),
        r"class_names holds \\xff, which is no text",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_data_set_is_named(case, mine):
    given, message = WRONG[case]
    mine(given)
    with pytest.raises(DataError, match=f"(?s)^the data set 'mine'.*{message}"):
        load_data("mine")
    (problem,) = check_data("mine").problems
    assert problem.startswith("the data set 'mine'")


def test_a_loader_that_fails_is_named(mine):
    mine(lambda: {}["where"])
    with pytest.raises(DataError, match="'mine' can't be loaded: its loader raised KeyError: 'whe"):
        load_data("mine")


def test_labels_of_another_type_are_refused(mine):
    wrong = images()
    wrong.labels = wrong.labels.to(torch.int32)
    mine(ImageData("a", wrong, images(), ("a", "b")))
    with pytest.raises(DataError, match=r"train must be .* labels \(int64\)"):
        load_data("mine")


def test_names_that_are_taken(mine):
    mine(parts())
    for name in ("digits", "cifar10", "cifar100-coarse"):
        with pytest.raises(ValueError, match=f"{name} is a known data set: register yours by ano"):
            mine(parts(), name)
    with pytest.raises(ValueError, match="a data set named 'mine' exists already"):
        mine(parts())
    with pytest.raises(ValueError, match="printable"):
        mine(parts(), "")


def test_it_is_found_by_name(mine, tmp_path, monkeypatch):
    assert register("mine")(parts) is parts
    monkeypatch.setitem(LOADERS._known, "mine", LOADERS["mine"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert load_data("mine", tmp_path).num_classes == 2
    assert absolute_source("mine") == "mine"
    assert data_names()[-1] == "mine"
    assert near_sources("Mine", tmp_path)[0] == "mine"
    assert check_source("mine") == "mine"
    with pytest.raises(MissingDataError, match="did you mean 'mine'"):
        load_data("mien", tmp_path)
    with pytest.raises(ValueError, match="unknown data set 'mien': did you mean 'mine'"):
        check_source("mien", tmp_path)
    with pytest.raises(ValueError, match="unknown data to fetch 'mine'"):
        fetch_data("mine", tmp_path)
    pack = write_pack(tmp_path / "a.npz", parts())
    with pytest.raises(DataError, match="can't be called 'mine': that is read from elsewhere"):
        import_data(pack, "mine", tmp_path)


def test_commands_know_it(mine, tmp_path):
    mine(parts())
    run = CliRunner().invoke
    listed = run(app, ["list", "--root", str(tmp_path)], env={"COLUMNS": "160"})
    assert " mine " in listed.stdout
    assert "registered" in listed.stdout
    assert "mine: all is well" in run(app, ["check", "mine"]).stdout
    done = run(app, ["show", "mine", "--out", str(tmp_path / "a.png")])
    assert "40 for training, 10 for testing" in done.stdout
    assert Image.open(tmp_path / "a.png").width > 100


def test_a_grid_of_it(mine, tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        "settings: {backbone: small-cnn}\nseeds: 1\nrows: {softmax: {settings: {head: softmax}}}\n"
        "columns: {a: {settings: {data: mine}}}\n"
    )
    with pytest.raises(ValueError, match="unknown data set in grid"):
        load_experiment(grid).cells()
    mine(parts())
    (cell,) = load_experiment(grid).cells()
    assert cell.task.config.data == "mine"


def test_a_training(mine, tmp_path):
    mine(parts(each=60))
    config = TrainConfig(data="mine", head="lace", backbone="small-cnn", epochs=3, batch_size=16)
    run = tmp_path / Task(config).name
    result = train(config, run)
    assert result["test_accuracy"] == 100
    assert result["data_digest"] == load_data("mine").digest
    assert Run(run).facts()["class_names"] == ["0", "1"]
    require_same_data([Task(config)], tmp_path, closely=True)
    LOADERS.forget("mine")
    mine(parts())
    with pytest.raises(ValueError, match="was trained on other images than mine holds"):
        require_same_data([Task(config)], tmp_path, closely=True)


def test_a_package_brings_one(tmp_path):
    """By an entry point, so that the command line knows it too."""
    (tmp_path / "flowers.py").write_text(
        "import numpy as np\n"
        "def load():\n"
        "    labels = np.arange(80) % 2\n"
        "    images = (labels * 150).astype(np.uint8)[:, None, None].repeat(8, 1).repeat(8, 2)\n"
        "    images[:, 0, 0] = np.arange(80)\n"
        "    return {'x_train': images, 'y_train': labels, 'class_names': ['iris', 'rose']}\n"
    )
    info = tmp_path / "flowers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: flowers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[torchlace.data_sets]\nflowers = flowers:load\ncifar10 = flowers:load\n"
        "broken = flowers:nothing\n"
    )

    def torchlace(*words):
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-m", "torchlace.cli", *words],
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "160"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )

    done = torchlace(
        *("train", "--data", "flowers", "--backbone", "small-cnn", "--epochs", "1"),
        *("--head", "softmax", "--batch-size", "16", "--quiet", "--run", "run"),
    )
    assert done.returncode == 0, done.stderr
    assert Run(tmp_path / "run").facts()["class_names"] == ["iris", "rose"]
    listed = torchlace("data", "list")
    assert " flowers " in listed.stdout
    assert " broken " in listed.stdout
    # A known set stays what it is.
    known = torchlace("data", "check", "cifar10", "--root", str(tmp_path))
    assert "torchlace data fetch cifar10" in known.stderr
    broken = torchlace("data", "check", "broken")
    assert broken.returncode == 1
    assert "the data set 'broken' of the package flowers can't be loaded" in broken.stderr
