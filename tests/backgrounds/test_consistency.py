"""Mean, precision and covariance as they are read are those in use."""

import pytest
import torch
from backgrounds.cases import CASES, CLASSES, WIDTH, batches, each, trained
from backgrounds.reference import ace
from torch.testing import assert_close

import torchlace as tl

CLASSWISE = [c for c in CASES if isinstance(c.build(), tl.backgrounds.ClasswiseBackground)]
GLOBAL = [case for case in CASES if case not in CLASSWISE]


@each(GLOBAL)
def test_whitened_products_are_those_of_the_precision(case):
    background = trained(case, steps=15)  # between refreshes
    features, _ = batches(1, seed=5)[0]
    whitened = background.whiten(features)
    assert whitened.shape == (len(features), background.out_features)
    centred = features - background.mean
    assert_close(whitened @ whitened.T, centred @ background.precision @ centred.T)
    assert_close(background.eval()(features), whitened)


@each(CLASSWISE)
def test_cosines_are_ace_with_each_mean_and_precision(case):
    background = trained(case, steps=15)  # between refreshes
    features, _ = batches(1, seed=5)[0]
    signatures = torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(2)).double()
    scores = ace(features, signatures, background.mean, background.precision).detach()
    own = torch.eye(CLASSES, dtype=torch.bool)[:, None]
    if case.name.startswith("one-vs-one"):
        expected = scores.masked_fill(own, 0).sum(0) / (CLASSES - 1)
    else:
        expected = scores.permute(1, 0, 2).diagonal(dim1=1, dim2=2)
    assert_close(background.cosines(features, background.transform(signatures)), expected)


@each(CASES)
def test_covariance_is_the_inverse_of_the_precision(case):
    background = trained(case)
    product = background.covariance @ background.precision
    assert_close(product, torch.eye(WIDTH, dtype=torch.float64).expand_as(product))
    assert_close(background.precision, background.precision.mT)
    assert (torch.linalg.eigvalsh(background.precision) > 0).all()


@each([case for case in CASES if case.options.get("mean") is False])
def test_mean_off_reads_as_zero(case):
    assert not trained(case).mean.any()


@each([case for case in CASES if case.options.get("covariance") is False])
def test_covariance_off_reads_as_the_identity(case):
    background = trained(case)
    assert background.out_features == WIDTH
    assert_close(background.precision, torch.eye(WIDTH).double().expand_as(background.precision))


@each([case for case in CASES if not case.options or "form" in case.options])
def test_readable_in_half_precision(case):
    background = trained(case).to(torch.float16)
    precise = trained(case)
    for name in ("mean", "precision", "covariance"):
        value, expected = getattr(background, name).double(), getattr(precise, name)
        assert (value - expected).norm() < 0.1 * expected.norm() + 1e-6, name


@pytest.mark.parametrize("seen", [1, 2])
@pytest.mark.parametrize("name", [name for name in tl.backgrounds.names() if "one-vs" in name])
def test_two_classes_of_which_one_or_both_were_seen(name, seen):
    torch.manual_seed(0)
    background = tl.backgrounds.create(name, WIDTH, 2)
    features, targets = torch.randn(12, WIDTH), torch.arange(12) % seen
    signatures = torch.randn(2, WIDTH, requires_grad=True)
    background.observe(features, targets)
    scores = background.cosines(features, background.transform(signatures))
    scores.sum().backward()
    assert scores.shape == (12, 2)
    assert scores.abs().max() <= 1 + 1e-5
    assert signatures.grad.isfinite().all()


@each([case for case in CLASSWISE if not case.options])
@pytest.mark.parametrize("size", [0.0, 1e-20, 1e20])
def test_features_of_any_size(case, size):
    background = case.build()
    torch.manual_seed(1)
    direction = torch.randn(5, WIDTH)
    features = (direction * size).requires_grad_()
    signatures = torch.randn(CLASSES, WIDTH, requires_grad=True)
    background.eval()
    scores = background.cosines(features, signatures)
    scores.sum().backward()
    if size and (not background.has_mean or not background.mean.any()):
        assert_close(scores, background.cosines(direction, signatures), rtol=1e-4, atol=1e-5)
    leaves = [features, signatures, *background.parameters()]
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)
