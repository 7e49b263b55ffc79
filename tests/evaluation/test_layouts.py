import sys

import numpy as np
import pytest
import torch
from evaluation.clouds import cloud

from torchlace.evaluation import layout, silhouette_score
from torchlace.functional import unit


@pytest.fixture(scope="module")
def points_and_labels():
    return cloud(100, 10, 3, spread=0.2)


@pytest.mark.parametrize("method", ["tsne", "umap"])
@pytest.mark.parametrize("dim", [2, 3])
def test_classes_that_are_apart_stay_apart(points_and_labels, method, dim):
    pytest.importorskip({"tsne": "openTSNE", "umap": "umap"}[method])
    points, labels = points_and_labels
    found = layout(points, method, dim)
    assert (found.shape, found.dtype) == ((100, dim), np.float32)
    assert silhouette_score(torch.from_numpy(found), labels) > 0.6


@pytest.mark.parametrize("method", ["tsne", "pca", "umap"])
def test_the_seed_decides_the_picture(points_and_labels, method):
    pytest.importorskip({"tsne": "openTSNE", "umap": "umap", "pca": "sklearn"}[method])
    points, _ = points_and_labels
    first = layout(points, method, seed=3)
    assert np.array_equal(first, layout(points, method, seed=3))
    if method != "pca":
        assert not np.array_equal(first, layout(points, method, seed=4))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_principal_components(points_and_labels, metric):
    points, _ = points_and_labels
    rows = (unit(points) if metric == "cosine" else points).double()
    centred = rows - rows.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    expected = (centred @ directions[:2].T).abs().numpy()
    found = np.abs(layout(points, "pca", metric=metric))
    assert np.allclose(found, expected, atol=1e-5)


def test_the_cosine_is_blind_to_lengths(points_and_labels):
    pytest.importorskip("openTSNE")
    points, _ = points_and_labels
    # Powers of two, so that directions are the same to the last bit.
    lengths = 2.0 ** (torch.arange(100) % 5)
    assert np.array_equal(layout(points), layout(points * lengths[:, None]))


@pytest.mark.parametrize("dim", [2, 3])
def test_the_sphere_has_radius_one(points_and_labels, dim):
    found = layout(points_and_labels[0], "pca", dim, sphere=True)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_progress_reaches_the_end(points_and_labels):
    pytest.importorskip("openTSNE")
    told = []
    layout(points_and_labels[0], dim=3, progress=lambda *step: told.append(step))
    assert told[-1] == (750, 750)
    assert told == sorted(told)


def test_arrays_and_few_points():
    pytest.importorskip("openTSNE")
    points = np.random.default_rng(0).normal(size=(6, 4))
    assert np.isfinite(layout(points)).all()


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (torch.rand(9, 4), {"dim": 4}, "dim must be 2 or 3, got 4"),
        (torch.rand(4, 4), {}, r"at least 5 .* got \(4, 4\)"),
        (torch.rand(9, 2), {"dim": 3}, r"d of at least 3, got \(9, 2\)"),
        (torch.full((9, 3), torch.inf), {}, "NaN or infinite"),
        (torch.rand(9, 4), {"method": "tsn"}, "did you mean 'tsne'"),
        (torch.rand(9, 4), {"metric": "manhattan"}, "unknown metric"),
    ],
)
def test_what_can_t_be_laid_out_is_said(points, options, message):
    with pytest.raises(ValueError, match=message):
        layout(points, **options)


@pytest.mark.parametrize(
    ("module", "method", "message"),
    [("openTSNE", "tsne", r"torchlace\[report\]"), ("umap", "umap", "pip install umap-learn")],
)
def test_a_missing_package_says_how_to_get_it(module, method, message, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message):
        layout(torch.rand(9, 4), method)
