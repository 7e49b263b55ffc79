"""Images of dask.array: the same as in memory, also where a worker dies."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from detection.scenes import scene

from torchlace.detection import ACEDetector, RXDetector, SMFDetector

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

IMAGE, TARGET = scene()
BOTH = np.stack([TARGET, TARGET[::-1]])
CHUNKS = (5, 9, 3)


@pytest.mark.parametrize("chunks", [CHUNKS, (1, 31, 8), (23, 31, 8)])
@pytest.mark.parametrize("options", [{}, {"columns": 4}, {"covariance": "oas"}], ids=str)
@pytest.mark.parametrize(
    "make",
    [lambda **o: ACEDetector(TARGET, **o), lambda **o: SMFDetector(BOTH, **o), RXDetector],
    ids=["ace", "two targets", "rx"],
)
def test_scores_and_finds_are_those_of_memory(make, options, chunks):
    options = {"false_alarm": 0.02, **options}
    image = da.from_array(IMAGE, chunks=chunks)
    found, expected = make(**options).fit(image), make(**options).fit(IMAGE)
    scores = found.score_samples(image)
    assert isinstance(scores, da.Array)
    whole = expected.score_samples(IMAGE)
    assert (scores.shape, scores.dtype) == (whole.shape, whole.dtype)
    np.testing.assert_allclose(scores.compute(), whole, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.threshold_, expected.threshold_, rtol=1e-10)
    assert isinstance(found.predict(image), da.Array)
    np.testing.assert_array_equal(found.predict(image).compute(), expected.predict(IMAGE))
    np.testing.assert_array_equal(
        make(**options).fit_predict(image).compute(), make(**options).fit_predict(IMAGE)
    )


def test_pixels_without_places_and_in_single_precision():
    pixels = IMAGE.reshape(-1, IMAGE.shape[2]).astype(np.float32)
    lazy = da.from_array(pixels, chunks=(100, 8))
    found = RXDetector().fit(lazy).score_samples(lazy)
    assert (found.dtype, found.shape) == (np.float32, (len(pixels),))
    expected = RXDetector().fit(pixels).score_samples(pixels)
    np.testing.assert_allclose(found.compute(), expected, rtol=1e-3)


def test_masked_pixels_are_left_out():
    hidden = np.zeros(IMAGE.shape[:2], dtype=bool)
    hidden[3:14], hidden[20, 4] = True, True
    masked = np.ma.array(IMAGE, mask=np.broadcast_to(hidden[..., None], IMAGE.shape))
    image = da.from_array(masked, chunks=CHUNKS)
    options = {"false_alarm": 0.02, "threshold": "empirical"}
    found, expected = ACEDetector(TARGET, **options).fit(image), ACEDetector(TARGET, **options)
    scores = found.score_samples(image).compute()
    np.testing.assert_array_equal(np.isnan(scores), hidden)
    own = expected.fit(IMAGE[~hidden]).score_samples(IMAGE[~hidden])
    np.testing.assert_allclose(scores[~hidden], own, rtol=1e-10, atol=1e-10)
    assert found.threshold_ == pytest.approx(expected.threshold_, rel=1e-10)


def test_what_is_wrong_is_said_as_of_arrays_in_memory():
    image = IMAGE.copy()
    image[21, 4, 2] = np.nan
    spoilt = da.from_array(image, chunks=CHUNKS)
    with pytest.raises(ValueError, match=r"in 1 of 713 background pixels, .* \(21, 4\), .*: 2\."):
        RXDetector().fit(spoilt)
    lazy = da.from_array(IMAGE, chunks=CHUNKS)
    message = r"in the chunk that begins at row 20: .* 1 of 93 pixels, .* \(1, 4\)"
    with pytest.raises(ValueError, match=message):
        RXDetector().fit(lazy).score_samples(spoilt).compute()
    with pytest.raises(ValueError, match="needs rows of neighbouring chunks"):
        RXDetector(window=(1, 5)).fit(lazy)
    with pytest.raises(ValueError, match="X has 7 features"):
        RXDetector().fit(lazy).score_samples(lazy[..., :7])


def slow(chunk):
    time.sleep(0.1)
    return chunk


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_two_workers_of_which_one_is_killed():
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        image = da.from_array(np.tile(IMAGE, (8, 1, 1)), chunks=(5, 31, 8)).map_blocks(slow)
        killed = []

        def kill():
            # Of this cluster, the first of two.
            pid = next(iter(client.run(os.getpid).values()))
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

        for work in ("background", "scores"):
            timer = threading.Timer(0.5, kill)
            timer.start()
            if work == "background":
                detector = ACEDetector(TARGET).fit(image)
            else:
                scores = detector.score_samples(image).compute()
            timer.join()
            assert killed[-1] not in client.run(os.getpid).values()
    assert len(killed) == 2
    expected = ACEDetector(TARGET).fit(np.tile(IMAGE, (8, 1, 1)))
    np.testing.assert_allclose(detector.covariance_, expected.covariance_, rtol=1e-10, atol=1e-14)
    own = expected.score_samples(np.tile(IMAGE, (8, 1, 1)))
    np.testing.assert_allclose(scores, own, rtol=1e-10, atol=1e-10)
