import subprocess
import sys

import numpy as np
import pytest
import torch
from evaluation.clouds import DEVICES, cloud
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from torchlace.evaluation import clusters, silhouette_samples, silhouette_score

METRICS = ["euclidean", "cosine"]


def reference(points, labels, metric):
    return metrics.silhouette_samples(points.double().numpy(), labels.numpy(), metric=metric)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((300, 8, 5), {}),
        ((1500, 64, 40), {"offset": 10.0}),
        ((1500, 16, 10), {"spread": 1e-3, "offset": 3.0}),
        ((700, 3, 2), {"spread": 30.0}),
    ],
)
def test_it_is_that_of_scikit_learn(shape, options, metric, device):
    points, labels = cloud(*shape, **options)
    found = silhouette_samples(points.to(device), labels.to(device), metric=metric)
    assert found.dtype == torch.float64
    assert found.device.type == device
    expected = reference(points, labels, metric)
    assert np.abs(found.cpu().numpy() - expected).max() < 1e-7
    score = silhouette_score(points.to(device), labels, metric=metric)
    assert score == pytest.approx(expected.mean(), abs=1e-8)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("together", [1, 2, 3, 100])
@pytest.mark.parametrize("classes", [2, 7, 90])
def test_blocks_don_t_show(classes, together, metric, monkeypatch):
    points, labels = cloud(500, 6, classes)
    whole = silhouette_samples(points, labels, metric=metric)
    monkeypatch.setattr(clusters, "_ROWS", 64)
    monkeypatch.setattr(clusters, "_ENTRIES", 64 * len(labels.unique()) * together)
    parts = silhouette_samples(points, labels, metric=metric)
    assert torch.allclose(whole, parts, rtol=0, atol=1e-12)


@settings(max_examples=60)
@given(
    samples=st.integers(4, 60),
    width=st.integers(1, 5),
    classes=st.integers(2, 8),
    exponent=st.integers(-15, 15),
    seed=st.integers(0, 2**31),
    metric=st.sampled_from(METRICS),
)
def test_any_points_at_any_magnitude(samples, width, classes, exponent, seed, metric):
    generator = torch.Generator().manual_seed(seed)
    # A coarse grid makes coinciding points, zero vectors and classes of one member.
    points = torch.randint(-2, 3, (samples, width), generator=generator).float()
    labels = torch.randint(classes, (samples,), generator=generator)
    if not 1 < len(labels.unique()) < samples:
        return
    expected = reference(points, labels, metric)
    found = silhouette_samples(points * 10.0**exponent, labels, metric=metric).numpy()
    assert np.abs(found - expected).max() < 1e-6


def test_a_single_member_scores_nothing():
    points = torch.tensor([[0.0], [1.0], [5.0]])
    assert silhouette_samples(points, torch.tensor([0, 0, 1]))[2] == 0


@pytest.mark.parametrize("metric", METRICS)
def test_coinciding_points_score_nothing(metric):
    points = torch.full((6, 3), 0.1)
    assert silhouette_samples(points, torch.arange(6) % 2, metric=metric).tolist() == [0] * 6


def test_labels_may_have_gaps_and_any_order():
    points, labels = cloud(200, 4, 3)
    names = torch.tensor([700, -3, 12])[labels]
    assert torch.equal(silhouette_samples(points, names), silhouette_samples(points, names.int()))
    expected = silhouette_score(points, labels)
    assert silhouette_score(points, names) == pytest.approx(expected, abs=1e-12)


def test_half_precision_points():
    points, labels = cloud(200, 4, 3)
    half = points.half()
    expected = reference(half, labels, "euclidean").mean()
    assert silhouette_score(half, labels) == pytest.approx(expected, abs=1e-7)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_is_that_of_a_few_blocks():
    script = r"""if True:
        import re, torch
        from torchlace.evaluation import silhouette_score
        # Not ru_maxrss, which begins with that of the process that started this one.
        peak = lambda: int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])
        points, labels = torch.rand(20_000, 4), torch.arange(20_000) % 50
        silhouette_score(points[:100], labels[:100])
        before = peak()
        silhouette_score(points, labels)
        print((peak() - before) / 1024)
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # All pairs at once would take 3 GB.
    assert float(done.stdout) < 350


@pytest.mark.parametrize(
    ("points", "labels", "message"),
    [
        (torch.zeros(4, 2), torch.zeros(4).long(), "got 4 points of 1 classes"),
        (torch.zeros(4, 2), torch.arange(4), "got 4 points of 4 classes"),
        (torch.zeros(4, 2), torch.arange(3), r"\(4,\)"),
        (torch.zeros(4), torch.arange(4), "shape"),
        (torch.full((4, 2), torch.nan), torch.arange(4) % 2, "NaN"),
    ],
)
def test_what_can_t_be_scored_is_said(points, labels, message):
    with pytest.raises(ValueError, match=message):
        silhouette_samples(points, labels)


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="did you mean 'cosine'"):
        silhouette_samples(torch.rand(4, 2), torch.arange(4) % 2, metric="cosin")
