"""The same scores on an accelerator."""

import numpy as np
import pytest
import torch
from detection.scenes import scene

from torchlace.detection import MIACE, ACEDetector, RXDetector, SMFDetector, open_cube

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
IMAGE, TARGET = scene()


@pytest.mark.parametrize("window", [None, (1, 5)])
@pytest.mark.parametrize("covariance", ["sample", "oas"])
@pytest.mark.parametrize("kind", [ACEDetector, SMFDetector, RXDetector])
def test_scores_are_those_of_the_cpu(kind, covariance, window):
    targets = [] if kind is RXDetector else [TARGET]
    options = {"window": window, "covariance": covariance, "false_alarm": 0.01}
    host = kind(*targets, device="cpu", **options).fit(IMAGE)
    expected = host.score_samples(IMAGE)
    for pixels, device in ((IMAGE, "cuda"), (torch.from_numpy(IMAGE).cuda(), "auto")):
        found = kind(*targets, device=device, **options).fit(pixels)
        np.testing.assert_allclose(found.score_samples(pixels), expected, rtol=1e-7, atol=1e-9)
        assert found.threshold_ == pytest.approx(host.threshold_, rel=1e-6)


@pytest.mark.parametrize("options", [{}, {"covariance": "oas"}, {"columns": 4}])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
def test_blocks_that_are_copied_while_others_are_computed(options, dtype, tmp_path, monkeypatch):
    image = (1000 * np.tile(IMAGE, (40, 1, 1))).astype(dtype)
    np.save(tmp_path / "c.npy", image)
    blocks = {"cpu": 1 << 25, "cuda": 9 * 31 * 8 * 8}
    monkeypatch.setattr("torchlace.detection.pixels._BLOCK_BYTES", blocks)
    options |= {"false_alarm": 0.01}
    expected = ACEDetector(1000 * TARGET, device="cpu", **options).fit(image).score_samples(image)
    for source in (open_cube(tmp_path / "c.npy"), image):
        detector = ACEDetector(1000 * TARGET, device="cuda", **options).fit(source)
        close = {"rtol": 1e-3, "atol": 1e-4} if dtype == np.float32 else {"rtol": 1e-8}
        np.testing.assert_allclose(detector.score_samples(source), expected, **close)


def test_bad_pixels_on_the_device_are_errors():
    pixels = torch.from_numpy(IMAGE).cuda()
    detector = RXDetector().fit(pixels)
    with pytest.raises(ValueError, match="X has 7 features"):
        detector.score_samples(pixels[..., :7])
    pixels[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite values"):
        detector.score_samples(pixels)
    with pytest.raises(ValueError, match="NaN or infinite values"):
        RXDetector().fit(pixels)


def test_signatures_are_those_of_the_cpu():
    rng = np.random.default_rng(0)
    bags = [rng.normal(size=(30, 8)) for _ in range(6)]
    found, expected = (
        MIACE(device=device).fit(bags, [1, 1, 1, 0, 0, 0]).signature_ for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
