import functools

import pytest
from cli.pictures import write
from training.processes import metrics
from training.stopping import StopAfter, StoppedError

from torchlace.data import BadImagesError, FileImages, load_data
from torchlace.training import TrainConfig, inputs, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("streamed") / "pictures"
    write(place)
    return place


@pytest.fixture
def streaming(monkeypatch):
    monkeypatch.setattr(inputs, "load_data", functools.partial(load_data, memory_limit=0))


def config(folder, **options):
    options = {"epochs": 2, "backbone": "small-cnn", "workers": 0, "batch_size": 128, **options}
    return TrainConfig(data=str(folder), **options)


@pytest.fixture(scope="module")
def held(folder, tmp_path_factory):
    run = tmp_path_factory.mktemp("held")
    train(config(folder), run)
    return metrics(run)


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_images_train_as_those_in_memory(workers, folder, held, streaming, tmp_path):
    assert isinstance(inputs.load_data(str(folder)).train, FileImages)
    train(config(folder, workers=workers), tmp_path)
    assert metrics(tmp_path) == held


def test_a_streamed_run_resumes(folder, held, streaming, tmp_path):
    with pytest.raises(StoppedError):
        train(config(folder), tmp_path, reporter=StopAfter(1))
    train(config(folder), tmp_path)
    assert metrics(tmp_path) == held


def test_a_file_that_breaks_on_the_way(streaming, tmp_path):
    folder = tmp_path / "pictures"
    paths = [path for path, _, _ in write(folder)]

    class Vandal(StopAfter):
        def epoch(self, row, epochs):
            for path in paths[::50]:
                path.write_bytes(b"")

    with pytest.raises(BadImagesError, match=r"\.png: "):
        train(config(folder), tmp_path / "strict", reporter=Vandal(1))
    assert len(metrics(tmp_path / "strict")) == 1
    for path in paths:
        path.unlink()
    write(folder)
    with pytest.warns(UserWarning, match=r"another image in place of .*\.png"):
        train(config(folder, skip_bad=True), tmp_path / "tolerant", reporter=Vandal(1))
    assert len(metrics(tmp_path / "tolerant")) == 2
