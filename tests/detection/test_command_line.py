"""What `torchlace detect` says before the work, of bands, and in whose words."""

import numpy as np
import pytest
import spectral
from cli.inside import torchlace
from detection.scenes import scene

from torchlace.detection import ACEDetector

IMAGE, TARGET = scene()
BANDS = IMAGE.shape[2]


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "cube.npy", IMAGE)
    np.savetxt(tmp_path / "target.csv", TARGET[None], delimiter=",")
    (tmp_path / "a.npy").mkdir()
    return tmp_path


def refused(folder, *arguments):
    """The one line of a refusal, which leaves no file behind."""
    before = written(folder)
    done = torchlace("detect", *arguments, folder=folder)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert written(folder) == before
    return done.err


def written(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.*p*")}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "scores.txt"), "--out scores.txt: it is written as .npy"),
        (("--out", "scores"), "--out scores: it is written as .npy"),
        (("--out", "a.npy"), "--out a.npy is a folder: name a .npy file in it"),
        (("--out", "no/scores.npy"), "there is no folder no, make it first"),
        (("--out", "cube.npy"), "--out cube.npy would overwrite what is read"),
        (("--png", "map.jpg"), "--png map.jpg: it is written as .png"),
        (("--png", "no/map.png"), "there is no folder no, make it first"),
        (("--drop-bands", "6-4"), "'6-4' is neither a band nor a range of bands"),
        (("--drop-bands", "1,x"), "'x' is neither a band nor a range of bands"),
        (("--drop-bands", "5-8"), "there is no band 8, the cube's 8 are 0 to 7"),
        (("--drop-bands", "0-7"), "--drop-bands leaves no band"),
    ],
)
def test_places_and_bands_are_looked_at_before_the_work(arguments, message, folder):
    # A spoilt cube would be refused for itself, had the work begun.
    if "cube.npy" not in arguments:
        np.save(folder / "cube.npy", np.full_like(IMAGE, np.nan))
    assert message in refused(folder, "cube.npy", "--target", "target.csv", *arguments)


def test_bands_are_dropped_from_cube_and_target_alike(folder):
    spoilt = IMAGE.copy()
    spoilt[..., [2, 3, 6]] = np.nan
    np.save(folder / "cube.npy", spoilt)
    command = ("detect", "cube.npy", "--target", "target.csv")
    done = torchlace(*command, "--drop-bands", "2-3, 6", folder=folder)
    assert (done.code, done.err) == (0, "")
    kept = [0, 1, 4, 5, 7]
    expected = spectral.ace(IMAGE[..., kept], TARGET[kept])
    np.testing.assert_allclose(np.load(folder / "scores.npy"), expected, atol=1e-8)


def test_the_advice_about_bands_is_what_to_type_next(folder):
    spoilt = IMAGE.copy()
    spoilt[4, 9, [2, 3, 6]] = np.nan
    spoilt[..., 5] = 0.3
    np.save(folder / "cube.npy", spoilt)
    command = ("cube.npy", "--target", "target.csv")
    said = refused(folder, *command)
    assert "in 1 of 713 background pixels, the first at (row, column) (4, 9)" in said
    assert "in 3 of 8 bands: 2, 3, 6." in said
    assert said.endswith("alike: --drop-bands 2-3,6\n")
    said = refused(folder, *command, "--drop-bands", "2-3,6")
    assert "1 of 5 bands do not vary over the background (5)" in said
    assert said.endswith("alike: --drop-bands 2-3,6,5\n")
    done = torchlace("detect", *command, "--drop-bands", "2-3,6,5", folder=folder)
    assert (done.code, done.err) == (0, "")


def test_targets_that_are_not_finite_name_their_bands(folder):
    target = TARGET.copy()
    target[4] = np.nan
    np.savetxt(folder / "target.csv", target[None], delimiter=",")
    said = refused(folder, "cube.npy", "--target", "target.csv", "--drop-bands", "1")
    assert "values in 4: drop these bands" in said
    assert said.endswith("--drop-bands 1,4\n")


def test_a_target_without_a_measured_band_is_no_matter_of_bands(folder):
    np.save(folder / "empty.npy", np.full(BANDS, np.nan))
    said = refused(folder, "cube.npy", "--target", "empty.npy")
    assert "target has no measured band: all its 8 values are NaN or infinite" in said
    assert "drop" not in said
    halves = np.stack([TARGET, TARGET])
    halves[0, :4], halves[1, 4:] = np.nan, np.inf
    np.save(folder / "halves.npy", halves)
    said = refused(folder, "cube.npy", "--target", "halves.npy")
    assert "no band is measured in all targets" in said
    assert "--drop-bands" not in said
    np.save(folder / "second.npy", np.stack([TARGET, np.full(BANDS, np.nan)]))
    assert "target 1 has no measured band" in refused(folder, "cube.npy", "--target", "second.npy")


def test_options_that_would_do_nothing_or_are_not_there(folder):
    said = refused(folder, "cube.npy", "--detector", "rx", "--convention", "paper")
    assert "rx has no target, so there is no --convention" in said
    said = refused(folder, "cube.npy", "--detector", "rx", "--device", "gpu")
    assert "unknown device 'gpu': use --device cpu" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("few.npy",), "more than 8, or use --covariance ledoit-wolf or --covariance oas"),
        (("cube.npy", "--covariance", "oas", "--threshold", "cfar"), "use --threshold empirical"),
        (("cube.npy", "--window", "1", "3"), "widen it, or use --covariance oas"),
        (
            ("cube.npy", "--threshold", "empirical", "--false-alarm", "1e-9"),
            "--false-alarm 1e-09 can't be counted among 713",
        ),
    ],
)
def test_advice_is_in_words_of_the_command_line(arguments, message, folder):
    np.save(folder / "few.npy", IMAGE[:2, :2])
    said = refused(folder, *arguments, "--detector", "rx")
    assert message in said
    assert "=" not in said


def test_pixels_without_data_are_left_out(folder):
    known = np.ones(IMAGE.shape[:2], dtype=bool)
    known[:3], known[7, 7] = False, False
    stored = np.where(known[..., None], 1000 * IMAGE, -9999)
    header = {"data ignore value": -9999, "reflectance scale factor": 1000}
    spectral.envi.save_image(str(folder / "c.hdr"), stored, dtype=np.float64, metadata=header)
    done = torchlace("detect", "c.hdr", "--target", "target.csv", "--png", "m.png", folder=folder)
    assert done.code == 0, done.err
    assert f"of {known.sum()} pixels above" in done.out
    assert f"left out {(~known).sum()} pixels without data, NaN in scores.npy" in done.out
    found = np.load(folder / "scores.npy")
    np.testing.assert_array_equal(np.isnan(found), ~known)
    expected = ACEDetector(TARGET).fit(IMAGE[known]).score_samples(IMAGE[known])
    np.testing.assert_allclose(found[known], expected, rtol=1e-8, atol=1e-10)
    message = refused(folder, "c.hdr", "--target", "target.csv", "--window", "1", "5")
    assert "pixels without data, which a window would slide over" in message


def test_pixels_without_data_in_some_bands_are_left_out_too(folder):
    stored = IMAGE.astype(np.float32)
    stored[3, 4, 2], stored[8, 1, 5:], stored[0] = -9999.99, -9999.99, -9999.99
    known = (stored != np.float32(-9999.99)).all(-1)
    header = {"data ignore value": "-9999.99"}
    spectral.envi.save_image(str(folder / "c.hdr"), stored, metadata=header)
    command = ("c.hdr", "--target", "target.csv")
    done = torchlace("detect", *command, folder=folder)
    assert done.code == 0, done.err
    assert f"left out {IMAGE.shape[1] + 2} pixels without data" in done.out
    found = np.load(folder / "scores.npy")
    np.testing.assert_array_equal(np.isnan(found), ~known)
    expected = spectral.ace(stored[known][None].astype(np.float64), TARGET)[0]
    np.testing.assert_allclose(found[known], expected, rtol=1e-6, atol=1e-8)
    done = torchlace("detect", *command, "--drop-bands", "2", folder=folder)
    assert f"left out {IMAGE.shape[1] + 1} pixels without data" in done.out
    message = refused(folder, *command, "--window", "1", "5")
    assert f"{IMAGE.shape[1] + 2} pixels without data, which a window would slide over" in message


def test_bands_without_any_data_are_what_to_drop(folder):
    stored = np.where(np.isin(np.arange(BANDS), [1, 2, 5]), 0, IMAGE)
    spectral.envi.save_image(
        str(folder / "c.hdr"), stored, dtype=np.float64, metadata={"data ignore value": 0}
    )
    command = ("c.hdr", "--target", "target.csv")
    said = refused(folder, *command, "--drop-bands", "1")
    assert "in some band, and all are in 2, 5: --drop-bands 1,2,5\n" in said
    done = torchlace("detect", *command, "--drop-bands", "1-2,5", folder=folder)
    assert (done.code, done.err) == (0, "")
    kept = [0, 3, 4, 6, 7]
    expected = spectral.ace(IMAGE[..., kept], TARGET[kept])
    np.testing.assert_allclose(np.load(folder / "scores.npy"), expected, atol=1e-8)
    stored = IMAGE.copy()
    stored[:12, :, 0], stored[12:, :, 1] = 0, 0
    spectral.envi.save_image(
        str(folder / "d.hdr"), stored, dtype=np.float64, metadata={"data ignore value": 0}
    )
    said = refused(folder, "d.hdr", "--target", "target.csv")
    assert "in some band: --drop-bands those that most pixels lack" in said


def test_a_cube_without_any_data_is_refused(folder):
    np.save(folder / "cube.npy", np.full_like(IMAGE, np.nan))
    assert "there is no data here" in refused(folder, "cube.npy", "--target", "target.csv")
