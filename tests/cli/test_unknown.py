"""``evaluate --unknown`` and ``predict --reject``: digits that a run has never seen."""

import json

import numpy as np
import pytest
from cli import inside
from PIL import Image
from sklearn.datasets import load_digits
from torch import arange

from torchlace.evaluation import guard, unknown_scores
from torchlace.evaluation.unknown import kept_unknown, known_samples
from torchlace.runs import Run, load_run
from torchlace.training import Reporter, TrainConfig, train


def torchlace(*arguments, code=0):
    """What a command says; no folder is needed where all paths are whole."""
    said = inside.torchlace(*arguments, folder=arguments[1].parent)
    assert said.code == code, said.err
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run on the digits below 8, and the others as a set and as files."""
    folder = tmp_path_factory.mktemp("unknown")
    digits = load_digits()
    images, labels = np.round(digits.images * 15.9).astype(np.uint8), digits.target
    known = labels < 8
    for name, chosen, classes in (("known", known, labels), ("others", ~known, labels - 8)):
        x, y = images[chosen], classes[chosen]
        new = arange(len(y)).numpy() % 4 == 0
        np.savez(
            folder / f"{name}.npz",
            **{"x_train": x[~new], "y_train": y[~new], "x_test": x[new], "y_test": y[new]},
        )
    for label in (3, 9):
        Image.fromarray(images[labels == label][0]).save(folder / f"{label}.png")
    Image.effect_noise((8, 8), 400).save(folder / "noise.png")
    config = TrainConfig(
        data=str(folder / "known.npz"), backbone="small-cnn", batch_size=64, epochs=8
    )
    train(config, folder / "run")
    return folder


def test_evaluate_says_how_well_each_score_tells_unknown_images_apart(place):
    others = str(place / "others.npz")
    said = torchlace("evaluate", place / "run", "--unknown", others, "--json")
    found = json.loads(said.out)["unknown"]
    assert found == unknown_scores(place / "run", [others])
    assert found["nearest-neighbours"][others]["auroc"] > 0.8
    table = torchlace("evaluate", place / "run", "--unknown", others).out
    assert "told from" in table
    assert "relative-ace" in table


def test_what_was_found_out_is_kept_and_stands_on_the_page(place):
    first, second = (str(place / f"{name}.npz") for name in ("others", "known"))
    found = (
        unknown_scores(place / "run", [first])["ace"]
        | unknown_scores(place / "run", [second])["ace"]
    )
    assert kept_unknown(Run(place / "run"))["ace"] == found
    options = ("--method", "pca", "--output", place / "page.html")
    torchlace("report", place / "run", *options)
    page = (place / "page.html").read_text("utf-8")
    table = page[page.index("of no known class told apart") :]
    best = max(each[first]["auroc"] for each in kept_unknown(Run(place / "run")).values())
    assert f"{100 * best:.1f}" in table[: table.index("</table>")]


def test_images_of_another_size_and_in_colour_are_brought_to_those_of_the_run(place):
    colour = place / "colour.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (40, 20, 14, 3), dtype=np.uint8)
    np.savez(colour, x_train=pixels, y_train=np.arange(40) % 2)
    found = unknown_scores(place / "run", [str(colour)])
    assert found["mahalanobis"][str(colour)]["auroc"] > 0.9


def test_predict_rejects_what_is_of_no_known_class(place):
    said = torchlace(
        *("predict", place / "run", place / "3.png", place / "9.png", place / "noise.png"),
        *("--reject", "0.1", "--json"),
    )
    digit, _, noise = json.loads(said.out)
    assert (digit["classes"][0]["class"], digit["rejected"]) == ("3", False)
    assert noise["rejected"]
    lines = torchlace(
        "predict", place / "run", place / "noise.png", "--reject", "0.1", "--csv"
    ).out.splitlines()
    assert lines[0] == "image,rank,class,probability,rejected"
    assert lines[1].endswith(",true")
    table = torchlace("predict", place / "run", place / "noise.png", "--reject", "0.1").out
    assert "of no known class" in table


def test_a_run_rejects_as_many_known_images_as_was_promised(place):
    loaded = load_run(place / "run", "cpu")
    guarded = guard(loaded, 0.1)
    known = known_samples(loaded, Reporter())
    assert (guarded.predict(known.held.features) == -1).mean() <= 0.1


def test_a_promise_that_too_few_images_allow_is_an_error_that_says_how_many_it_takes(place):
    said = torchlace("predict", place / "run", place / "3.png", "--reject", "0.001", code=1)
    assert "needs 999 samples of known classes" in said.err


def test_unknown_images_that_are_not_there_are_an_error(place):
    said = torchlace("evaluate", place / "run", "--unknown", "nowhere", code=1)
    assert "images of no known class: no data 'nowhere'" in said.err
