"""Indian Pines, a real scene of 145 × 145 pixels and 200 bands."""

import numpy as np
import pytest
import spectral

from torchlace.detection import ACEDetector, RXDetector, auroc
from torchlace.detection.scene import detect_in_file

TOWERS, LABELLED = 16, 5


@pytest.fixture(scope="module")
def pines():
    datasets = pytest.importorskip("tensorly.datasets")
    found = datasets.load_indian_pines()
    return found["tensor"].astype(np.uint16), np.asarray(found["ticks"][0])


@pytest.mark.parametrize("interleave", ["bip", "bsq"])
def test_a_search_in_a_file_in_blocks_equals_spectral_in_memory(
    interleave, pines, tmp_path, monkeypatch
):
    image, classes = pines
    target = image[classes == TOWERS][:LABELLED].mean(0)
    spectral.envi.save_image(str(tmp_path / "c.hdr"), image, interleave=interleave)
    np.save(tmp_path / "t.npy", target)
    monkeypatch.setattr("torchlace.detection.pixels._BLOCK_BYTES", {"cpu": 1 << 22})
    found = detect_in_file(tmp_path / "c.hdr", tmp_path / "t.npy", tmp_path / "s.npy")
    spectral.settings.show_progress = False
    expected = spectral.ace(image.astype(np.float64), target)
    np.testing.assert_allclose(found.scores[..., 0], expected, rtol=1e-6, atol=1e-9)
    with monkeypatch.context() as patch:
        patch.setattr("torchlace.detection.pixels._BLOCK_BYTES", {"cpu": 1 << 30})
        whole = ACEDetector(target).fit(image).score_samples(image)
    np.testing.assert_allclose(found.scores[..., 0], whole, rtol=1e-10, atol=1e-10)


def test_towers_are_found_from_five_pixels_and_ahead_of_anomalies(pines):
    image, classes = pines
    chosen = np.argwhere(classes == TOWERS)[::20]
    target = image[tuple(chosen.T)].mean(0)
    own, others = classes == TOWERS, (classes > 0) & (classes != TOWERS)
    own[tuple(chosen.T)] = False
    areas = [
        auroc(scores[own], scores[others])
        for scores in (
            ACEDetector(target).fit(image).score_samples(image),
            RXDetector().fit(image).score_samples(image),
        )
    ]
    assert areas[0] > 0.94 > areas[1] > 0.9
