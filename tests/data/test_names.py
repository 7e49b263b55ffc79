"""Names and paths of data that are nearly right, and the same from elsewhere."""

import pytest

from torchlace.data import KNOWN, MissingDataError, absolute_source, load_data, near_sources


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / "here" / "photos").mkdir(parents=True)
    (tmp_path / "here" / "photo.txt").touch()
    (tmp_path / "here" / "Labels.csv").touch()
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "mushrooms.npz").touch()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("photso", "photos"), ("Photo", "photos"), ("labels.csv", "Labels.csv")),
        *(("CIFAR10", "cifar10"), ("Mushroom", "mushrooms"), ("../her/photos", None)),
    ],
)
def test_the_nearest_is_proposed(name, expected, here):
    found = near_sources(name, here / "packs")
    assert found[:1] == ([expected] if expected else [])
    with pytest.raises(MissingDataError) as error:
        load_data(name, here / "packs")
    assert (f"did you mean {expected!r}" in str(error.value)) == (expected is not None)


def test_in_other_folders_too(here):
    assert near_sources(f"{here}/here/potos") == [f"{here}/here/photos"]
    assert near_sources("nowhere/at/all") == []


def test_paths_become_absolute_and_names_stay(here, monkeypatch):
    assert absolute_source("photos") == absolute_source("../here/photos/") == f"{here}/here/photos"
    monkeypatch.setenv("HOME", str(here))
    assert absolute_source("~/here/photos") == f"{here}/here/photos"
    for name in (*KNOWN, "mushrooms", "photso"):
        assert absolute_source(name) == name
    (here / "here" / "cifar10").mkdir()
    assert absolute_source("cifar10") == "cifar10"
