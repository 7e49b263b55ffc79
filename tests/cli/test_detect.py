"""`torchlace detect`."""

import re

import numpy as np
import pytest
import spectral
import spectral.io.envi as envi
from cli.inside import torchlace
from detection.scenes import scene
from PIL import Image
from training import processes
from training.processes import fresh

IMAGE, TARGET = scene()


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "cube.npy", IMAGE)
    np.savetxt(tmp_path / "target.csv", TARGET[None], delimiter=",")
    return tmp_path


def test_from_a_cube_to_scores_and_a_map(folder):
    done = fresh(
        "detect", "cube.npy", "--target", "target.csv", "--out", "s.npy", "--png", "map.png",
        folder=folder,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    scores = np.load(folder / "s.npy")
    np.testing.assert_allclose(scores, spectral.ace(IMAGE, TARGET), atol=1e-8)
    place = tuple(map(int, np.unravel_index(scores.argmax(), scores.shape)))
    assert f"largest {scores.max():.6g} at {place}" in done.out
    assert "scores in s.npy, map in map.png" in done.out
    with Image.open(folder / "map.png") as picture:
        picture.verify()
        assert min(picture.size) > 200


def test_a_target_as_spreadsheets_with_decimal_commas_write_it(folder):
    np.savetxt(folder / "exact.csv", TARGET[None], fmt="%.6f", delimiter=",")
    numbers = ";".join(f"{value:.6f}".replace(".", ",") for value in TARGET)
    names = ";".join(f"Kanal {letter}" for letter in "abcdefgh")
    (folder / "german.csv").write_text(f"\ufeff{names}\r\n{numbers}\r\n", encoding="utf-8")
    for name in ("exact", "german"):
        command = ("detect", "cube.npy", "--target", f"{name}.csv", "--out", f"{name}.npy")
        done = torchlace(*command, folder=folder)
        assert (done.code, done.err) == (0, "")
    assert (folder / "german.npy").read_bytes() == (folder / "exact.npy").read_bytes()
    (folder / "mixed.csv").write_text(numbers.replace(",", ".", 1))
    done = torchlace("detect", "cube.npy", "--target", "mixed.csv", folder=folder)
    assert done.code == 1
    assert done.err.startswith("error: mixed.csv, line 1: numbers hold commas as well as points;")


def test_other_detectors_and_options(folder):
    def run(*options):
        done = torchlace("detect", "cube.npy", *options, folder=folder)
        assert (done.code, done.err) == (0, "")
        return done.out, np.load(folder / "scores.npy")

    _, found = run("--detector", "rx")
    np.testing.assert_allclose(found, spectral.rx(IMAGE), rtol=1e-8)
    _, found = run("--detector", "smf", "--target", "target.csv")
    np.testing.assert_allclose(found, spectral.matched_filter(IMAGE, TARGET), atol=1e-8)
    out, found = run("--target", "target.csv", "--convention", "paper", "--false-alarm", "0.01")
    assert found.min() < 0
    assert "false-alarm rate 0.01" in out
    np.save(folder / "two.npy", np.stack([TARGET, 2 * TARGET]))
    out, found = run("--target", "two.npy", "--window", "1", "5", "--png", "maps.png")
    assert found.shape == (*IMAGE.shape[:2], 2)
    assert out.startswith("target 1: ")
    assert (folder / "maps.png").exists()
    out, found = run("--detector", "rx", "--columns", "10", "--png", "columns.png")
    strips = [spectral.rx(IMAGE[:, start:stop]) for start, stop in ((0, 10), (10, 20), (20, 31))]
    np.testing.assert_allclose(found, np.concatenate(strips, axis=1), rtol=1e-8)
    # The last strip has more pixels, and so another threshold.
    assert re.search(r"pixels above 2\d\.\d+ to 2\d\.\d+, false-alarm rate", out)
    assert (folder / "columns.png").exists()
    out, found = run("--detector", "rx", "--covariance", "oas", "--threshold", "empirical",
                     "--false-alarm", "0.1")  # fmt: skip
    assert f"{(found > np.quantile(found, 0.9, method='higher')).sum()} of {found.size}" in out


def test_envi_images_and_pixels_without_places(folder):
    envi.save_image(str(folder / "cube.hdr"), IMAGE)
    done = torchlace("detect", "cube.hdr", "--target", "target.csv", folder=folder)
    assert (done.code, done.err) == (0, "")
    np.testing.assert_allclose(
        np.load(folder / "scores.npy"), spectral.ace(IMAGE, TARGET), atol=1e-8
    )
    np.save(folder / "pixels.npy", IMAGE.reshape(-1, IMAGE.shape[2]))
    done = torchlace("detect", "pixels.npy", "--target", "target.csv", folder=folder)
    assert done.code == 0
    assert np.load(folder / "scores.npy").shape == (IMAGE[..., 0].size,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "ace looks for a spectrum: give --target FILE, or --detector rx"),
        (("--target", "nowhere.csv"), "there is no file nowhere.csv"),
        (("--target", "short.csv"), "expected one line of 8 numbers"),
        (("--target", "cube.npy"), "holds an array of 23 × 31 × 8 numbers"),
        (("--detector", "rx", "--target", "target.csv"), "takes no --target"),
        (("--detector", "acee"), "did you mean 'ace'"),
        (("--detector", "rx", "--covariance", "samples"), "did you mean 'sample'"),
        (("--detector", "rx", "--threshold", "cfr"), "did you mean 'cfar'"),
        (("--detector", "rx", "--false-alarm", "0"), "false_alarm must lie in (0, 1)"),
        (("--detector", "rx", "--false-alarm", "1e-9", "--threshold", "empirical"), "be counted"),
        (("--detector", "rx", "--window", "3", "4"), "two odd widths"),
        (("--detector", "rx", "--window", "1", "3"), "not more than 8 bands"),
        (("--detector", "rx", "--device", "cuda"), "no CUDA device here"),
        (("--target", "target.csv", "--convention", "papers"), "did you mean 'paper'"),
        (("--detector", "rx", "--out", "no/such/place.npy"), "could not be written"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(arguments, message, folder):
    (folder / "short.csv").write_text("1,2,3\n")
    done = torchlace("detect", "cube.npy", *arguments, folder=folder)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (folder / "scores.npy").exists()


def test_bad_cubes(folder):
    spoilt = IMAGE.copy()
    spoilt[..., 3] = np.nan
    np.save(folder / "nan.npy", spoilt)
    dead = IMAGE.copy()
    dead[..., 3] = 0
    np.save(folder / "dead.npy", dead)
    np.save(folder / "few.npy", IMAGE[:2, :2])
    (folder / "text.npy").write_text("no array")
    np.save(folder / "pixels.npy", IMAGE[0])
    for name, message in {
        "nan.npy": "in 1 of 8 bands: 3.",
        "dead.npy": "1 of 8 bands do not vary over the background (3)",
        "few.npy": "4 background pixels in 8 bands",
        "text.npy": "not a readable .npy array",
        "nowhere.npy": "there is no file nowhere.npy",
        "target.csv": "a cube is a .npy array",
    }.items():
        done = torchlace("detect", name, "--detector", "rx", folder=folder)
        assert (done.code, done.out) == (1, ""), name
        assert message in done.err
        assert done.err.count("\n") == 1
    done = torchlace("detect", "pixels.npy", "--detector", "rx", "--png", "a.png", folder=folder)
    assert "--png draws images; pixels.npy holds 31 pixels without places" in done.err


def test_without_spectral_it_says_what_to_install(folder):
    envi.save_image(str(folder / "cube.hdr"), IMAGE)
    package = folder / "without" / "spectral"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named spectral')")
    command = ("detect", "cube.hdr", "--detector", "rx")
    done = processes.torchlace(*command, folder=folder, before_all_else=folder / "without")
    assert done.code == 1
    advice = "error: cube.hdr: ENVI images need pip install spectral"
    assert done.err == f"{advice} (No module named spectral)\n"
