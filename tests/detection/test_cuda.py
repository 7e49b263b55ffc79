"""The same scores on an accelerator."""

import numpy as np
import pytest
import torch
from detection.scenes import scene

from torchlace.detection import MIACE, ACEDetector, RXDetector, SMFDetector

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
