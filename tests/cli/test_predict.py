import csv
import io
import json
import shlex
import shutil

import pytest
import torch
from cli.inside import torchlace
from cli.pictures import TRAIN, as_folder
from safetensors.torch import load_file

from torchlace.training import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    as_folder(folder)
    done = torchlace(*TRAIN, "--data", "pictures", "--run", "run", folder=folder)
    assert done.code == 0, done.err
    return folder


def predict(place, *arguments):
    return torchlace("predict", "run", *arguments, folder=place)


@pytest.fixture
def image(place):
    return min((place / "pictures" / "digit 0").iterdir())


def test_probabilities_fall_and_sum_to_one(place, image):
    (only,) = predict(place, image, "--top", 10, "--json").json()
    chances = [each["probability"] for each in only["classes"]]
    assert chances == sorted(chances, reverse=True)
    assert sum(chances) == pytest.approx(1, abs=1e-5)
    assert {each["class"] for each in only["classes"]} == {f"digit {i}" for i in range(10)}
    (short,) = predict(place, image, "--json").json()
    assert short["classes"] == only["classes"][:3]


def test_a_temperature_at_which_all_probabilities_are_equal_changes_no_order(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run")
    run = Run(tmp_path / "run")
    weights = load_file(run.weights_path)
    weights["head.temperature"] = torch.full_like(weights["head.temperature"], 1e9)
    run.write_weights(weights)
    command = ("predict", "run", place / "pictures", "--json")
    cool, hot = (torchlace(*command, folder=folder).json() for folder in (place, tmp_path))
    assert len({each["probability"] for found in hot for each in found["classes"]}) == 1
    ranked = [[[each["class"] for each in one["classes"]] for one in all_] for all_ in (cool, hot)]
    assert ranked[0] == ranked[1]


def test_csv_says_what_json_says(place):
    folder = place / "pictures" / "digit 7"
    rows = list(csv.DictReader(io.StringIO(predict(place, folder, "--csv").out)))
    expected = [
        (each["image"], str(rank), one["class"], f"{one['probability']:.6f}")
        for each in predict(place, folder, "--json").json()
        for rank, one in enumerate(each["classes"], start=1)
    ]
    assert [tuple(row.values()) for row in rows] == expected
    assert len(rows) == 3 * len(list(folder.iterdir()))


def test_the_table_shows_the_classes_and_breaks_no_figure(place, image, monkeypatch):
    from typer.testing import CliRunner

    from torchlace.cli import app

    monkeypatch.chdir(place)
    long = place / "a folder of pictures" / f"{'IMG_20260713_' * 6}.png"
    long.parent.mkdir(exist_ok=True)
    shutil.copy(image, long)
    for top in (3, 10):
        command = ("predict", "run", str(image), str(long), "--top", str(top))
        for only in predict(place, *command[2:], "--json").json():
            shown = [f"{100 * each['probability']:.1f}" for each in only["classes"]]
            for width in ("80", "200"):
                out = CliRunner().invoke(app, command, env={"COLUMNS": width}).output
                assert max(map(len, out.splitlines())) <= int(width)
                assert not {*shown} - {*out.replace("│", " ").split()}


def test_names_in_brackets_are_shown(place, image):
    odd = place / "[bold]name.png"
    shutil.copy(image, odd)
    assert "[bold]name.png" in predict(place, odd).out


def test_images_of_other_sizes_and_colours(place, image):
    from PIL import Image

    large = place / "large.png"
    Image.open(image).convert("RGBA").resize((80, 80)).save(large)
    grey, coloured = predict(place, image, large, "--json").json()
    assert coloured["classes"][0]["class"] == grey["classes"][0]["class"]


def test_bad_images_stop_it_or_are_left_out(place, image):
    bad = place / "bad.png"
    bad.write_bytes(b"no image")
    strict = predict(place, bad, image, "--json")
    assert (strict.code, strict.out) == (1, "")
    assert str(bad) in strict.err
    tolerant = predict(place, bad, image, "--json", "--skip-bad")
    assert [each["image"] for each in tolerant.json()] == [str(image)]
    assert tolerant.err.startswith(f"left out {bad}: not an image that Pillow can read")
    nothing = predict(place, bad, "--skip-bad")
    assert nothing.code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "nowhere.png"), "there is no nowhere.png"),
        (("run", "empty"), "there are no images in empty"),
        (("empty", "pictures"), "empty holds no run: there is no config.yaml"),
        (("young", "pictures"), "young has no weights yet: train it to its first epoch"),
    ],
)
def test_errors_are_one_line(arguments, message, place):
    (place / "empty").mkdir(exist_ok=True)
    (place / "young").mkdir(exist_ok=True)
    shutil.copy(place / "run" / "config.yaml", place / "young")
    done = torchlace("predict", *arguments, folder=place)
    assert (done.code, done.out, done.err) == (1, "", f"error: {message}\n")


@pytest.mark.parametrize("command", [("evaluate",), ("predict", "pictures")])
def test_damaged_weights_are_one_line(command, place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "damaged")
    weights = tmp_path / "damaged" / "best.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    done = torchlace(command[0], tmp_path / "damaged", *command[1:], folder=place)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert "best.safetensors" in done.err
    assert "Traceback" not in done.err


def test_an_unfinished_run_says_whose_weights_it_uses_and_how_to_go_on(place, image, tmp_path):
    young = tmp_path / "a run"
    shutil.copytree(place / "run", young)
    (young / "result.json").unlink()
    done = torchlace("predict", "a run", image, "--json", folder=tmp_path)
    assert done.code == 0
    assert len(done.json()) == 1
    rows = list(csv.DictReader((young / "metrics.csv").open()))
    best = json.loads((place / "run" / "result.json").read_text())["best_epoch"]
    (note,) = done.err.splitlines()
    assert f"the weights of epoch {best}, its best of {len(rows)}" in note
    # The command that it names finishes the run, from any folder.
    command = shlex.split(note.partition("to finish it: torchlace ")[2])
    finished = torchlace(*command, folder=tmp_path)
    assert finished.code == 0, finished.err
    again = torchlace("predict", "a run", image, folder=tmp_path)
    assert (again.code, again.err) == (0, "")
    assert "1 image by a run" in again.out


def test_json_and_csv_at_once_are_refused(place, image):
    done = predict(place, image, "--json", "--csv")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "choose one" in done.err
