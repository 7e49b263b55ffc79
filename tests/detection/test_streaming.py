"""Cubes that are read in blocks: the scores of memory, little memory, interruptions, bad files."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import spectral
import torch
from detection.scenes import scene
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.format import write_array_header_1_0

from torchlace import _reporter
from torchlace.detection import ACEDetector, RXDetector, SMFDetector, open_cube
from torchlace.detection.background import Moments
from torchlace.detection.cubes import Slabs
from torchlace.detection.pixels import Pixels
from torchlace.detection.scene import detect_in_file

IMAGE, TARGET = scene()
HEIGHT, WIDTH, BANDS = IMAGE.shape
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
FORMATS = ["npy", "fortran", "bsq", "bil", "bip", "zarr", "tif"]


@pytest.fixture
def small_blocks(monkeypatch):
    """Five rows at a time, and everything noted at once."""
    monkeypatch.setattr("torchlace.detection.pixels._BLOCK_BYTES", {"cpu": 5 * WIDTH * BANDS * 8})
    monkeypatch.setattr("torchlace.detection.journal._PAUSE", 0.0)


def write(folder, kind, image):
    if kind in ("npy", "fortran"):
        np.save(folder / "c.npy", np.asfortranarray(image) if kind == "fortran" else image)
        return folder / "c.npy"
    if kind == "zarr":
        zarr = pytest.importorskip("zarr")
        made = zarr.create_array(
            str(folder / "c.zarr"), shape=image.shape, dtype=image.dtype, chunks=(7, 9, 3)
        )
        made[:] = image
        return folder / "c.zarr"
    if kind == "tif":
        rasterio = pytest.importorskip("rasterio")
        facts = {"height": HEIGHT, "width": WIDTH, "count": BANDS, "dtype": image.dtype}
        with rasterio.open(
            folder / "c.tif", "w", driver="GTiff", tiled=True, blockxsize=16, blockysize=16, **facts
        ) as file:
            file.write(image.transpose(2, 0, 1))
        return folder / "c.tif"
    spectral.envi.save_image(str(folder / "c.hdr"), image, dtype=image.dtype, interleave=kind)
    return folder / "c.hdr"


@pytest.mark.parametrize("kind", FORMATS)
def test_any_rows_of_any_format(kind, tmp_path):
    cube = open_cube(write(tmp_path, kind, IMAGE))
    assert cube.shape == IMAGE.shape
    for rows in (slice(0, 1), slice(3, 17), slice(13, 15), slice(20, 99)):
        np.testing.assert_array_equal(cube[rows], IMAGE[rows])
    np.testing.assert_array_equal(
        cube.keep(np.array([1, 6])).keep(np.array([1]))[5:], IMAGE[5:, :, 6:7]
    )


OPTIONS = [
    {},
    {"covariance": "oas", "false_alarm": 0.02},
    {"covariance": "ledoit-wolf", "false_alarm": 0.02},
    {"threshold": "empirical", "false_alarm": 0.02},
    {"window": (3, 7)},
    {"window": (1, 5), "covariance": "oas", "false_alarm": 0.02},
    {"columns": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", ["npy", "bsq", "zarr"])
def test_scores_and_thresholds_are_those_of_memory(kind, options, tmp_path, small_blocks, request):
    path = write(tmp_path, kind, IMAGE)
    np.save(tmp_path / "t.npy", TARGET)
    found = detect_in_file(path, tmp_path / "t.npy", tmp_path / "s.npy", **options)
    detector = ACEDetector(TARGET, **options).fit(open_cube(path))
    streamed = detector.score_samples(open_cube(path))
    np.testing.assert_array_equal(found.scores[..., 0], streamed)
    np.testing.assert_array_equal(found.thresholds[..., 0], detector.fitted_threshold_)
    # In one block, as any array of this size is.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchlace.detection.pixels._BLOCK_BYTES", {"cpu": 1 << 25})
        whole = ACEDetector(TARGET, **options).fit(IMAGE)
        expected = whole.score_samples(IMAGE)
    np.testing.assert_allclose(streamed, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(detector.threshold_, whole.threshold_, rtol=1e-10)


@pytest.mark.parametrize("kind", ["npy", "tif"])
def test_single_precision_is_the_same_bit_for_bit(kind, tmp_path, small_blocks):
    image = IMAGE.astype(np.float32)
    cube = open_cube(write(tmp_path, kind, image))
    found = RXDetector().fit(cube).score_samples(cube)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, RXDetector().fit(image).score_samples(image))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_moments_of_parts_merged_in_any_order_are_those_of_all(sizes, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(3, 2, size=(size + 1, 4, 3)) for size in sizes]
    moments = []
    for part in parts:
        moments.append(Moments([slice(0, 1), slice(1, 4)], 7, CPU))
        for block in Pixels(part).blocks(CPU):
            moments[-1].add(block)
    order = rng.permutation(len(parts))
    total = Moments([slice(0, 1), slice(1, 4)], 7, CPU)
    for index in order:
        total.merge(moments[index].state())
    again = Moments([slice(0, 1), slice(1, 4)], 7, CPU)
    again.merge(total.state())
    whole = np.concatenate(parts)
    gaussian = again.gaussian()
    for index, strip in enumerate((whole[:, :1], whole[:, 1:])):
        found, rows = gaussian.strip(index), strip.reshape(-1, 3)
        assert found.samples == len(rows)
        np.testing.assert_allclose(found.mean, rows.mean(0), rtol=1e-12)
        np.testing.assert_allclose(found.covariance, np.cov(rows.T), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [ACEDetector, SMFDetector, RXDetector])
@pytest.mark.parametrize("several", [False, True])
def test_strips_of_columns_are_searched_as_images_of_their_own(kind, several, small_blocks):
    image = IMAGE.copy()
    image[:, 8:16] *= 3  # what one background for all would take for signal
    targets = (
        [] if kind is RXDetector else [np.stack([TARGET, TARGET[::-1]]) if several else TARGET]
    )
    detector = kind(*targets, columns=8, false_alarm=0.01).fit(image)
    scores, found = detector.score_samples(image), detector.predict(image)
    own = kind(*targets, columns=8, false_alarm=0.01).fit_predict(image)
    for strip in (slice(0, 8), slice(8, 16), slice(16, 31)):  # the last takes what is left over
        alone = kind(*targets, false_alarm=0.01).fit(image[:, strip])
        expected = alone.score_samples(image[:, strip])
        np.testing.assert_allclose(scores[:, strip], expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(found[:, strip], alone.predict(image[:, strip]))
        np.testing.assert_array_equal(own[:, strip], alone.fit_predict(image[:, strip]))


def test_strips_of_columns_that_can_not_be():
    for options, image, message in [
        ({"columns": 40}, IMAGE, "columns=40 asks for an image .* of so many columns or more"),
        ({"columns": 2}, IMAGE[0], "columns=2 asks for an image"),
        ({"columns": 2, "window": (1, 5)}, IMAGE, "and without a window"),
        ({"columns": 2, "covariance": "robust"}, IMAGE, 'goes with covariance="sample"'),
    ]:
        with pytest.raises(ValueError, match=message):
            RXDetector(**options).fit(image)
    dead = IMAGE.copy()
    dead[:, 5, 3] = 0.25
    with pytest.raises(
        ValueError, match=r"1 of 8 bands do not vary over the background in columns 5 to 5 \(3\)"
    ):
        RXDetector(columns=1).fit(dead)
    with pytest.raises(ValueError, match="an image of 31 columns, this one has 30"):
        RXDetector(columns=2).fit(IMAGE).score_samples(IMAGE[:, 1:])


# Of a process: its largest resident memory, which of a child begins at that of its parent.
SEARCH = """if True:
    import re, sys
    from pathlib import Path
    from torchlace.detection.scene import detect_in_file
    for name in sys.argv[1:]:
        detect_in_file(Path(name), out=Path(name + ".scores.npy"), detector="rx")
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory as Linux tells it")
def test_a_gigabyte_takes_no_more_than_200_mb_of_memory(tmp_path):
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < 1.2e9:
        pytest.skip("less than 1.2 GB of disk are free")
    rows = np.random.default_rng(0).integers(0, 4000, (25, 1000, 100), dtype=np.uint16)
    for name, times in (("empty", 1), ("large", 200)):
        with (tmp_path / name).with_suffix(".npy").open("wb") as file:
            shape = (25 * times, *rows.shape[1:])
            write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": shape})
            for _ in range(times):
                file.write(rows)
    assert (tmp_path / "large.npy").stat().st_size > 1e9
    peaks = {}
    for name in ("empty", "large"):
        command = [sys.executable, "-c", SEARCH, str(tmp_path / f"{name}.npy")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks[name] = int(done.stdout) / 1024
    assert peaks["large"] < peaks["empty"] + 200
    (tmp_path / "large.npy").unlink()


class At(_reporter.Reporter):
    """Does something when a piece of work has come so far, and keeps what it is told."""

    def __init__(self, what="", done=0, action=None):
        self.when, self.action, self.said = (what, done), action, []

    def message(self, text):
        self.said.append(text)

    def progress(self, what, done, total):
        assert 0 < done <= total == HEIGHT
        self.said.append((what, done))
        if (what, done) == self.when:
            self.action()


def stop():
    raise KeyboardInterrupt


def search(folder, reporter=None, **options):
    return detect_in_file(
        folder / "c.npy", folder / "t.npy", folder / "s.npy", reporter=reporter, **options
    )


@pytest.fixture
def folder(tmp_path, small_blocks):
    np.save(tmp_path / "c.npy", IMAGE)
    np.save(tmp_path / "t.npy", TARGET)
    return tmp_path


@pytest.mark.parametrize("options", OPTIONS[:2] + OPTIONS[3:5] + OPTIONS[6:], ids=str)
@pytest.mark.parametrize(
    "when", [("background", 10), ("background", 23), ("scores", 5), ("scores", 20)]
)
def test_an_interrupted_search_goes_on_where_it_was(when, options, folder):
    if "window" in options:  # no background before, and as many rows at a time as the window has
        when = ("scores", 14)
    expected = search(folder, **options)
    expected = np.array(expected.scores), expected.thresholds
    (folder / "s.npy").unlink()
    before = At(*when, stop)
    with pytest.raises(KeyboardInterrupt):
        search(folder, before, **options)
    assert "the same command goes on" in before.said[-1]
    assert not (folder / "s.npy").exists()
    after = At()
    found = search(folder, after, **options)
    assert str(after.said[0]).startswith(f"going on with the {when[0]} from row")
    np.testing.assert_array_equal(found.scores, expected[0])
    np.testing.assert_array_equal(found.thresholds, expected[1])
    assert [path.name for path in folder.iterdir() if "unfinished" in path.name] == []
    # A block whose end was told but not yet noted is looked at again; what came before is not.
    seen = [said for said in after.said if isinstance(said, tuple) and said[0] == when[0]]
    assert seen[0] == when if seen else when[1] == HEIGHT


def test_a_killed_search_goes_on_too(folder):
    script = """if True:
        import os, signal, sys
        from pathlib import Path
        from torchlace._reporter import Reporter
        from torchlace.detection import journal, pixels
        from torchlace.detection.scene import detect_in_file
        pixels._BLOCK_BYTES["cpu"], journal._PAUSE = 5 * 31 * 8 * 8, 0.0
        class Killer(Reporter):
            def progress(self, what, done, total):
                if (what, done) == ("scores", 15):
                    os.kill(os.getpid(), signal.SIGKILL)
        folder = Path(sys.argv[1])
        detect_in_file(folder / "c.npy", folder / "t.npy", folder / "s.npy", reporter=Killer())
    """
    done = subprocess.run([sys.executable, "-c", script, str(folder)], check=False)
    assert done.returncode == -signal.SIGKILL
    after = At()
    found = search(folder, after)
    assert "going on with the scores from row 10 of 23" in after.said
    expected = ACEDetector(TARGET).fit(IMAGE).score_samples(IMAGE)
    np.testing.assert_array_equal(found.scores[..., 0], expected)


def interrupted(folder):
    with pytest.raises(KeyboardInterrupt):
        search(folder, At("scores", 15, stop))


@pytest.mark.parametrize("changed", ["cube", "target", "settings"])
def test_what_changed_before_resuming_is_named_and_all_begins_anew(changed, folder):
    interrupted(folder)
    image, target, options = IMAGE, TARGET, {}
    if changed == "cube":
        image = IMAGE[::-1].copy()
        np.save(folder / "c.npy", image)
    elif changed == "target":
        target = TARGET + 1
        np.save(folder / "t.npy", target)
    else:
        options = {"covariance": "oas", "false_alarm": 0.1}
    after = At()
    found = search(folder, after, **options)
    assert after.said[0].startswith(f"the {changed} changed since the search in")
    assert after.said[1] == ("background", 5)
    detector = ACEDetector(target, **options).fit(image)
    np.testing.assert_array_equal(found.scores[..., 0], detector.score_samples(image))


def test_a_cube_that_changes_while_it_is_read(folder):
    def change():
        os.utime(folder / "c.npy", (1, 1))

    with pytest.raises(ValueError, match=r"c\.npy changed while it was read"):
        search(folder, At("scores", 5, change))
    assert sorted(os.listdir(folder)) == ["c.npy", "t.npy"]


def test_files_that_are_cut_short(folder):
    def cut():
        os.truncate(folder / "c.npy", 8000)

    with pytest.raises(ValueError, match=r"c\.npy ends within rows \d+ to \d+: it was cut short"):
        search(folder, At("background", 5, cut))
    with pytest.raises(ValueError, match=r"and holds 7,872 bytes"):
        search(folder)
    assert sorted(os.listdir(folder)) == ["c.npy", "t.npy"]


def test_blocks_without_data_are_left_out(folder):
    image = IMAGE.copy()
    image[3:16], image[20, 4] = np.nan, np.nan
    known = ~np.isnan(image[..., 0])
    np.save(folder / "c.npy", image)
    found = search(folder, false_alarm=0.02, threshold="empirical")
    np.testing.assert_array_equal(np.isnan(found.scores[..., 0]), ~known)
    assert found.empty == (~known).sum()
    detector = ACEDetector(TARGET, false_alarm=0.02, threshold="empirical").fit(image[known])
    expected = detector.score_samples(image[known])
    np.testing.assert_allclose(found.scores[known][:, 0], expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.thresholds, detector.fitted_threshold_, rtol=1e-10)
    with pytest.raises(ValueError, match="pixels without data, which a window would slide over"):
        search(folder, window=(1, 5))


def test_a_pixel_that_is_spoilt_in_a_late_block_is_named(folder):
    image = IMAGE.copy()
    image[3:16], image[21, 4, 2], image[22, 9, 5] = np.nan, np.nan, np.inf
    np.save(folder / "c.npy", image)
    count = IMAGE[..., 0].size - 13 * WIDTH
    message = (
        f"in 2 of {count} background pixels, the first at .* \\(21, 4\\), in 2 of 8 bands: 2, 5"
    )
    with pytest.raises(ValueError, match=message):
        search(folder)


def test_a_full_disk_is_said_and_the_search_goes_on_when_there_is_room(folder):
    script = """if True:
        import resource, sys
        from torchlace.cli import app
        from torchlace.detection import journal, pixels
        pixels._BLOCK_BYTES["cpu"], journal._PAUSE = 5 * 31 * 8 * 8, 0.0
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        app(sys.argv[1:])
    """
    command = ["detect", "c.npy", "--target", "t.npy", "--out", "s.npy"]
    done = subprocess.run(
        [sys.executable, "-c", script, *command],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: s\.npy\.unfinished/scores\.npy could not be written \(File too large\): make "
        r"room, then the same command goes on from row 15 of 23\n",
        done.stderr,
    )
    after = At()
    search(folder, after)
    assert "going on with the scores from row 15 of 23" in after.said


def test_a_disk_without_room_for_the_scores_is_noticed_before_they_are_computed(
    folder, monkeypatch
):
    usage = type("usage", (), {"free": 100})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    told = At()
    with pytest.raises(OSError, match="it takes 5,704 bytes more, and 100 are free"):
        search(folder, told)
    assert not [said for said in told.said if said[0] == "scores"]


def test_two_searches_for_one_file(folder):
    def second():
        with pytest.raises(ValueError, match=r"another search is writing .*s\.npy"):
            search(folder)

    found = search(folder, At("scores", 10, second))
    assert np.isfinite(found.scores).all()


def test_packages_that_are_missing_and_files_that_are_none(tmp_path, monkeypatch):
    for kind in ("zarr", "tif"):
        path = write(tmp_path, kind, IMAGE)
        name = "zarr" if kind == "zarr" else "rasterio"
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(ImportError, match=f"pip install {name}"):
                open_cube(path)
    (tmp_path / "d.tif").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"d\.tif is not a readable image"):
        open_cube(tmp_path / "d.tif")
    (tmp_path / "d.zarr").mkdir()
    with pytest.raises(ValueError, match=r"d\.zarr is not a readable \.zarr array"):
        open_cube(tmp_path / "d.zarr")


def test_no_data_scales_and_offsets_of_a_geotiff(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    stored = (1000 * IMAGE).astype(np.int16)
    stored[4, 7], stored[9, 1, 2] = -1, -1
    facts = {"height": HEIGHT, "width": WIDTH, "count": BANDS, "dtype": "int16", "nodata": -1}
    with rasterio.open(tmp_path / "c.tif", "w", driver="GTiff", **facts) as file:
        file.write(stored.transpose(2, 0, 1))
        file.scales, file.offsets = [0.001] * BANDS, [0.5] * BANDS
    found = open_cube(tmp_path / "c.tif")[:]
    np.testing.assert_array_equal(found.mask, stored == -1)
    np.testing.assert_allclose(found.data[stored >= 0], stored[stored >= 0] / 1000 + 0.5)


def test_chunks_are_decompressed_once_and_whole():
    loaded = []

    def load(start, stop):
        loaded.append((start, stop))
        return np.arange(start, stop)

    slabs = Slabs(load, 7, 23)
    parts = [slabs(start, min(start + 5, 23)) for start in range(0, 23, 5)]
    np.testing.assert_array_equal(np.concatenate(parts), np.arange(23))
    assert loaded == [(0, 7), (7, 14), (14, 21), (21, 23)]


def test_the_next_block_is_read_while_one_is_used(small_blocks):
    class Source:
        shape, dtype = IMAGE.shape, IMAGE.dtype

        def __getitem__(self, rows):
            read[rows.start].set()
            return IMAGE[rows]

    read = {start: threading.Event() for start in range(0, HEIGHT, 5)}
    for block in Pixels(Source()).blocks(CPU):
        assert block.rows.stop == HEIGHT or read[block.rows.start + 5].wait(20)


def test_a_pixel_that_is_spoilt_among_others_without_data_is_an_error_when_scored(folder):
    image = IMAGE.copy()
    image[3:16], image[21, 4, 2] = np.nan, np.nan
    np.save(folder / "c.npy", image)
    with pytest.raises(ValueError, match=r"in 1 of 310 pixels, the first at .* \(21, 4\)"):
        RXDetector().fit(IMAGE).score_samples(open_cube(folder / "c.npy"))
