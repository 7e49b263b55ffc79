"""LACE.published solves where the paper decomposes; the result is the same, and more precise."""

import pytest
import torch
from heads.cases import batch
from torch.nn import functional as F
from torch.testing import assert_close

import torchlace as tl


def paper_scores(x, signatures, mean, matrix):
    u, d, _ = torch.linalg.svd(matrix @ matrix.T)
    whitening = torch.diag(d**-0.5) @ u.T
    return F.normalize((x - mean) @ whitening.T) @ F.normalize(signatures @ whitening.T).T


def parts(head):
    return head.weight, head.background.mean, head.background.matrix


@pytest.mark.parametrize("seed", range(5))
def test_scores_and_gradients_of_the_svd_recipe(seed):
    torch.manual_seed(seed)
    head = tl.LACE.published(8, 5, dtype=torch.float64)
    x, y = batch(32, seed=seed, width=8)
    x.requires_grad_()
    expected = paper_scores(x, *parts(head))
    assert_close(head(x), expected, rtol=1e-9, atol=1e-9)
    ours = torch.autograd.grad(head.loss(x, y), [x, *parts(head)])
    theirs = torch.autograd.grad(F.cross_entropy(expected, y), [x, *parts(head)])
    assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_closer_to_the_truth_than_the_svd_recipe_in_single_precision(seed):
    torch.manual_seed(seed)
    head = tl.LACE.published(64, 10)
    x, y = torch.randn(32, 64), torch.randint(10, (32,))
    truth = paper_results(head, x, y, torch.float64)
    svd = paper_results(head, x, y, torch.float32)
    x.requires_grad_()
    scores = head(x)
    ours = (scores, *torch.autograd.grad(head.loss(x, y), [x, *parts(head)]))
    for name, exact, solved, decomposed in zip(
        ("scores", "features", "signatures", "mean", "matrix"), truth, ours, svd, strict=True
    ):
        assert (solved - exact).norm() < (decomposed - exact).norm(), name


def paper_results(head, x, y, dtype):
    leaves = [t.detach().to(dtype).requires_grad_() for t in (x, *parts(head))]
    scores = paper_scores(*leaves)
    return (scores, *torch.autograd.grad(F.cross_entropy(scores, y), leaves))


def test_identical_eigenvalues_have_a_gradient():
    head = tl.LACE.published(6, 5, dtype=torch.float64)
    with torch.no_grad():
        head.background.matrix.copy_(torch.eye(6))
    head.loss(*batch()).backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


def test_start_is_the_papers():
    torch.manual_seed(0)
    head = tl.LACE.published(256, 100)
    bound = 256**-0.5
    assert head.scale == 1
    assert head.signature_space == "features"
    for values in (head.weight, head.background.mean):
        assert values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    assert head.background.matrix.std().item() == pytest.approx(1, rel=0.02)
