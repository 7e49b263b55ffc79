import sys

import numpy as np
import pytest
import torch
from evaluation.runs import copied, trained

from torchlace.evaluation import check_method, inspect, picture, pictures


@pytest.fixture
def calls(monkeypatch):
    real, seen = pictures.layout, []

    def counted(points, *arguments, **options):
        seen.append(len(points))
        return real(points, *arguments, **options)

    monkeypatch.setattr(pictures, "layout", counted)
    return seen


@pytest.fixture
def found(tmp_path):
    return inspect(copied("lace", tmp_path), device="cpu")


def test_every_run_shows_the_same_images(tmp_path):
    drawn = []
    for name in ("lace", "softmax"):
        found = inspect(copied(name, tmp_path), device="cpu")
        drawn.append(picture(found, method="pca", samples=100).indices)
        counts = found.labels[drawn[-1]].bincount(minlength=10)
        assert counts.min() >= 9
        assert counts.max() <= 11
    assert np.array_equal(*drawn)
    assert len(drawn[0]) == 100
    other = picture(found, method="pca", samples=100, seed=1).indices
    assert not np.array_equal(drawn[0], other)


def test_images_and_signatures_are_laid_out_together(found, calls):
    for dim in (2, 3):
        result = picture(found, method="pca", dim=dim)
        assert np.array_equal(result.indices, np.arange(359))
        assert result.points.shape == (359, dim)
        assert result.signatures.shape == (10, dim)
        assert result.points.dtype == result.signatures.dtype == np.float32
        together = np.concatenate([result.points, result.signatures])
        assert np.allclose(np.linalg.norm(together, axis=1), 1) == (dim == 3)
    assert calls == [369, 369]


@pytest.mark.parametrize("space", ["raw", "whitened"])
def test_signatures_lie_with_their_class(space, tmp_path):
    pytest.importorskip("openTSNE")
    found = inspect(trained("lace", epochs=6), device="cpu")
    result = picture(found, space, dim=3)
    points, signatures = torch.from_numpy(result.points), torch.from_numpy(result.signatures)
    nearest = torch.cdist(points, signatures).argmin(1)
    assert (nearest == found.labels).double().mean() > 0.7


def test_a_picture_is_kept_while_it_is_current(found, calls):
    first = picture(found, method="pca", samples=50)
    again = picture(found, method="pca", samples=50)
    assert len(calls) == 1
    for name in ("indices", "points", "signatures"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    picture(found, method="pca", samples=60)
    picture(found, method="pca", samples=60, seed=1)
    picture(found, space="whitened", method="pca", samples=60, seed=1)
    assert len(calls) == 4
    names = {path.name for path in found.path.glob("embedding*")}
    assert names == {"embedding-raw-pca-2d.npz", "embedding-whitened-pca-2d.npz"}


def test_damaged_pictures_are_made_anew(found, calls):
    first = picture(found, method="pca")
    path = found.path / "embedding-raw-pca-2d.npz"
    for content in (path.read_bytes()[:200], b"", b"nothing"):
        path.write_bytes(content)
        assert np.array_equal(first.points, picture(found, method="pca").points)
    assert len(calls) == 4


def test_progress_is_told(found):
    pytest.importorskip("openTSNE")
    told = []

    class Watcher:
        def message(self, text):
            pytest.fail(text)

        def progress(self, what, done, total):
            told.append((what, done, total))

    picture(found, samples=40, reporter=Watcher())
    assert told[-1] == ("tsne, raw", 750, 750)


@pytest.mark.parametrize("name", ["softmax", "one-vs-all"])
def test_no_background_no_whitened_space(name):
    found = inspect(trained(name), device="cpu")
    with pytest.raises(ValueError, match='use space="raw"'):
        picture(found, space="whitened")


def test_an_unknown_space_is_named(found):
    with pytest.raises(ValueError, match="did you mean 'whitened'"):
        picture(found, space="whitend")


@pytest.mark.parametrize(
    ("method", "module", "said"),
    [
        ("tsne", "openTSNE", "t-SNE needs openTSNE: pip install 'torchlace[report]'"),
        ("umap", "umap", "UMAP needs umap-learn: pip install umap-learn"),
        ("pca", "sklearn", "PCA needs scikit-learn: pip install 'torchlace[train]'"),
    ],
)
def test_a_method_is_looked_for_and_not_imported(method, module, said, tmp_path, monkeypatch):
    run = copied("lace", tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / f"{module}.py").write_text("raise AssertionError('it takes long')")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "here")
        patch.delitem(sys.modules, module, raising=False)
        check_method(method, [run])
        assert module not in sys.modules
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError) as raised:
        check_method(method, [run])
    assert str(raised.value) == f"{said} (No module named '{module}')"


def test_an_unknown_method_is_said_to_be(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'tsne'"):
        check_method("tsn", [copied("lace", tmp_path)])
