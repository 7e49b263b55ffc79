"""Runs that are there, and the data that a grid means."""

import dataclasses

import numpy as np
import pytest
from training.rewriting import FACTS

from torchlace.data import load_data
from torchlace.experiments import grid
from torchlace.experiments.cells import Task
from torchlace.experiments.grid import require_same_data
from torchlace.training import Run, TrainConfig

CONFIG = TrainConfig(data="photos.npz", backbone="small-cnn", epochs=2)


def pack(folder, value=0):
    folder.mkdir(exist_ok=True)
    images = np.full((8, 8, 8), value, np.uint8)
    images[::2, 0] = 200
    labels = np.arange(8) % 2
    np.savez(folder / "photos.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    return folder


def learn(runs, config=CONFIG, *, finished=True):
    """A run of the data that lie in the current folder."""
    run = Run(runs / Task(config).name)
    run.path.mkdir(parents=True)
    digest = {"data_digest": load_data(config.data, config.root).digest}
    run.start(config, {**FACTS, **digest})
    if finished:
        run.finish({"test_accuracy": 50.0, "epochs": 2, "seconds": 1.0, **digest})
    return run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(pack(tmp_path / "one"))
    return tmp_path / "runs"


@pytest.fixture
def loaded(monkeypatch):
    found = []

    def load(source, *arguments, **options):
        found.append(source)
        return load_data(source, *arguments, **options)

    monkeypatch.setattr(grid, "load_data", load)
    return found


@pytest.mark.parametrize("closely", [False, True])
@pytest.mark.parametrize("finished", [False, True])
def test_the_same_path_elsewhere_is_another_run(closely, finished, runs, tmp_path, monkeypatch):
    run = learn(runs, finished=finished)
    require_same_data([Task(CONFIG)], runs, closely=closely)
    monkeypatch.chdir(pack(tmp_path / "two", value=9))
    with pytest.raises(ValueError, match="choose another folder by runs") as error:
        require_same_data([Task(CONFIG)], runs, closely=closely)
    for part in (run.path, tmp_path / "one" / "photos.npz", tmp_path / "two" / "photos.npz"):
        assert str(part) in str(error.value)


def test_moved_data_are_the_same_but_no_training_goes_on_from_them(runs, tmp_path, monkeypatch):
    finished, cut = CONFIG, dataclasses.replace(CONFIG, seed=1)
    learn(runs, finished)
    learn(runs, cut, finished=False)
    (tmp_path / "one").rename(tmp_path / "two")
    monkeypatch.chdir(tmp_path / "two")
    tasks = [Task(finished), Task(cut)]
    require_same_data(tasks, runs)
    require_same_data(tasks[:1], runs, closely=True)
    with pytest.raises(ValueError, match=r"-s1 was trained on \S*/one/photos.npz, and this grid"):
        require_same_data(tasks, runs, closely=True)


@pytest.mark.parametrize("finished", [False, True])
def test_replaced_data_are_noticed_before_runs(finished, runs, tmp_path):
    run = learn(runs, finished=finished)
    pack(tmp_path / "one", value=9)
    require_same_data([Task(CONFIG)], runs)
    with pytest.raises(
        ValueError, match=r"was trained on other images than \S*photos.npz"
    ) as error:
        require_same_data([Task(CONFIG)], runs, closely=True)
    assert str(run.path) in str(error.value)


def test_a_pack_of_ones_own_may_lie_elsewhere_but_not_differ(runs, tmp_path, monkeypatch):
    config = dataclasses.replace(CONFIG, data="photos", root=str(tmp_path / "one"))
    monkeypatch.chdir(tmp_path)
    learn(runs, config)
    moved = dataclasses.replace(config, root=str(pack(tmp_path / "two")))
    require_same_data([Task(moved)], runs, closely=True)
    pack(tmp_path / "two", value=9)
    with pytest.raises(ValueError, match="was trained on other images than photos holds"):
        require_same_data([Task(moved)], runs, closely=True)


def test_data_are_read_once_and_only_where_it_matters(runs, loaded):
    configs = [dataclasses.replace(CONFIG, seed=seed) for seed in range(3)]
    for config in configs:
        learn(runs, config)
    tasks = [Task(config) for config in configs]
    require_same_data(tasks, runs)
    assert loaded == []
    require_same_data(tasks, runs, closely=True)
    assert loaded == ["photos.npz"]
    unknown = [Task(dataclasses.replace(CONFIG, seed=7))]
    digits = TrainConfig(backbone="small-cnn", seed=8)
    learn(runs, digits)
    require_same_data([*unknown, Task(digits)], runs, closely=True)
    assert loaded == ["photos.npz"]
