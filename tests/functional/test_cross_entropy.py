"""Dense and chunked cross-entropy against torch's own, in fp64."""

import itertools

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from torchlace.functional import (
    Mixed,
    chunked_cross_entropy,
    cross_entropy,
    reduce,
    split_logits,
)

N, C, D = 9, 7, 4
CHUNKS = [1, 3, C, C + 5]
IGNORE = {"no": -100, "some": -100, "a-class": 2}


def square_root(logit):
    return torch.atan(logit) - 0.7


MARGINS = {"none": None, "shift": lambda logit: logit - 0.4, "curve": square_root}


def problem(classes=C, ignore="no"):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    targets = torch.randint(classes, (N,), generator=generator)
    if ignore == "some":
        targets[::4] = -100
    weight = normal(classes).abs() + 0.1
    return normal(N, D), 2 * normal(classes, D), normal(classes), targets, weight


def direct(features, vectors, bias, targets, *, normalize, margin, ignore_index=-100, **options):
    """The definition, through torch."""
    vectors = F.normalize(vectors, dim=1) if normalize else vectors
    logits = features @ vectors.T + (0 if bias is None else bias)
    if margin is not None:
        known = torch.where(targets == ignore_index, 0, targets)
        own = F.one_hot(known, len(vectors)).bool()
        logits = torch.where(own, margin(logits), logits)
    return F.cross_entropy(logits, targets, ignore_index=ignore_index, reduction="none", **options)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("margin", MARGINS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_chunked_equals_torch_in_values_and_gradients(chunk, margin, smoothing):
    choices = itertools.product([False, True], [False, True], [False, True], IGNORE)
    for with_weight, with_bias, normalize, ignore in choices:
        features, vectors, bias, targets, weight = problem(ignore=ignore)
        options = {
            "normalize": normalize,
            "margin": MARGINS[margin],
            "ignore_index": IGNORE[ignore],
            "weight": weight if with_weight else None,
            "label_smoothing": smoothing,
        }
        leaves = [features.requires_grad_(), vectors.requires_grad_()]
        leaves += [bias.requires_grad_()] if with_bias else []
        bias = bias if with_bias else None
        found = chunked_cross_entropy(features, vectors, targets, bias=bias, chunk=chunk, **options)
        expected = direct(features, vectors, bias, targets, **options)
        assert_close(found, expected)
        slopes = torch.linspace(0.5, 2, N, dtype=torch.float64)
        for one, other in zip(
            torch.autograd.grad(found @ slopes, leaves),
            torch.autograd.grad(expected @ slopes, leaves),
            strict=True,
        ):
            assert_close(one, other)


@pytest.mark.parametrize("ignore", IGNORE)
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("margin", MARGINS)
def test_dense_equals_torch(margin, smoothing, ignore):
    features, vectors, bias, targets, weight = problem(ignore=ignore)
    options = {"margin": MARGINS[margin], "weight": weight, "label_smoothing": smoothing}
    options["ignore_index"] = IGNORE[ignore]
    found = cross_entropy(features @ vectors.T + bias, targets, **options)
    assert_close(found, direct(features, vectors, bias, targets, normalize=False, **options))


@pytest.mark.parametrize("chunk", CHUNKS)
def test_gradcheck(chunk):
    features, vectors, bias, targets, weight = problem()
    leaves = [value.requires_grad_() for value in (features, vectors, bias)]

    def loss(features, vectors, bias):
        return chunked_cross_entropy(
            features,
            vectors,
            targets,
            bias=bias,
            normalize=True,
            margin=square_root,
            weight=weight,
            label_smoothing=0.1,
            chunk=chunk,
        )

    assert torch.autograd.gradcheck(loss, leaves)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_split_logits(chunk):
    features, vectors, bias, targets, mixture = problem()
    others, target, total = split_logits(
        features, vectors, targets, bias=bias, mixture=mixture, chunk=chunk
    )
    logits = features @ vectors.T + bias
    own = F.one_hot(targets, C).bool()
    assert_close(target, logits[own])
    assert_close(others, logits.masked_fill(own, -torch.inf).logsumexp(1))
    assert_close(total, logits @ mixture)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_one_class(smoothing):
    features, vectors, _, _, _ = problem(classes=1)
    leaves = [features.requires_grad_(), vectors.requires_grad_()]
    targets = torch.zeros(N, dtype=torch.long)
    losses = chunked_cross_entropy(*leaves, targets, label_smoothing=smoothing)
    assert_close(losses, torch.zeros_like(losses))
    for gradient in torch.autograd.grad(losses.sum(), leaves):
        assert_close(gradient, torch.zeros_like(gradient))


def test_zero_class_vectors_have_finite_gradients():
    features, vectors, _, targets, _ = problem()
    vectors[2] = 0
    leaves = [features.requires_grad_(), vectors.requires_grad_()]
    found = chunked_cross_entropy(*leaves, targets, normalize=True, chunk=3)
    assert_close(found, direct(*leaves, None, targets, normalize=True, margin=None))
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(found.sum(), leaves))


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_class_vectors_of_any_size(size):
    features, vectors, _, targets, _ = problem()
    leaf = (vectors * size).float().requires_grad_()
    found = chunked_cross_entropy(features.float(), leaf, targets, normalize=True, chunk=3)
    expected = direct(features, vectors, None, targets, normalize=True, margin=None)
    found.sum().backward()
    assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    assert leaf.grad.isfinite().all()


def test_large_logits_do_not_overflow():
    features = torch.tensor([[1e4, -1e4]], requires_grad=True)
    losses = chunked_cross_entropy(features, torch.eye(2), torch.tensor([1]), chunk=1)
    losses.sum().backward()
    assert losses.item() == pytest.approx(2e4)
    assert_close(features.grad, torch.tensor([[1.0, -1.0]]))


def test_empty_batch():
    _, vectors, _, targets, _ = problem()
    losses = chunked_cross_entropy(torch.zeros(0, D).double(), vectors, targets[:0], chunk=3)
    assert losses.shape == (0,)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignore", IGNORE)
def test_reduce_equals_torch(reduction, weighted, ignore, smoothing):
    features, vectors, _, targets, weight = problem(ignore=ignore)
    options = {"weight": weight if weighted else None, "ignore_index": IGNORE[ignore]}
    logits = features @ vectors.T
    losses = cross_entropy(logits, targets, label_smoothing=smoothing, **options)
    expected = F.cross_entropy(
        logits, targets, reduction=reduction, label_smoothing=smoothing, **options
    )
    assert_close(reduce(losses, targets, reduction, **options), expected)
    options |= {"reduction": reduction, "label_smoothing": smoothing}
    assert_close(cross_entropy(logits, targets, **options), expected)
    assert_close(chunked_cross_entropy(features, vectors, targets, chunk=3, **options), expected)


@pytest.mark.parametrize("size", [1e-37, 1e-42])
def test_mean_of_class_weights_that_are_next_to_nothing(size):
    losses = torch.tensor([1.0, 3.0], requires_grad=True)
    weight = torch.full((2,), size)
    found = reduce(losses * weight, torch.tensor([0, 1]), "mean", weight=weight)
    found.backward()
    assert found.item() == pytest.approx(2.0 if size == 1e-37 else 0.0)
    assert losses.grad.isfinite().all()


@pytest.mark.parametrize("targets", [[], [-100, -100]], ids=["empty", "all-ignored"])
def test_reduce_of_nothing_is_zero(targets):
    losses = torch.zeros(len(targets), requires_grad=True)
    found = reduce(losses, torch.tensor(targets, dtype=torch.long), "mean")
    found.backward()
    assert found.item() == 0
    assert losses.grad.isfinite().all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("targets", [[], [-100, -100]], ids=["empty", "all-ignored"])
def test_mean_of_nothing_is_zero(targets, weighted):
    logits = torch.ones(len(targets), 3, requires_grad=True)
    weight = torch.tensor([1.0, 2.0, 3.0]) if weighted else None
    labels = torch.tensor(targets, dtype=torch.long)
    found = cross_entropy(logits, labels, reduction="mean", weight=weight)
    found.backward()
    assert found.item() == 0
    assert not logits.grad.any()


def test_chunked_of_two_labels_and_a_weight_is_that_of_their_probabilities():
    features, vectors, _, first, _ = problem(ignore=False)
    second, share = first.roll(1), torch.linspace(0, 1, N, dtype=torch.float64)
    found = chunked_cross_entropy(features, vectors, Mixed(first, second, share), chunk=3)
    dense = share[:, None] * F.one_hot(first, len(vectors))
    dense = dense + (1 - share[:, None]) * F.one_hot(second, len(vectors))
    expected = F.cross_entropy(features @ vectors.T, dense, reduction="none")
    assert_close(found, expected)
