"""Centre loss and angular margin contrastive loss against loops over samples and pairs."""

import math

import pytest
import torch

from torchlace.functional import amc_loss, center_loss

D, C = 5, 3


def rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, D, generator=generator, dtype=torch.float64)


LABELS = {
    "mixed": [0, 1, 2, 0, 1, 0],
    "odd": [0, 1, 2, 2, 0],
    "ignored": [0, -1, 2, 0, 1, -1, 1, 2],
    "same": [1, 1, 1, 1],
    "different": [0, 1, 1, 2],
    "all-ignored": [-1, -1, -1],
    "one": [2],
    "none": [],
}


@pytest.fixture(params=LABELS, ids=str)
def targets(request):
    return torch.tensor(LABELS[request.param], dtype=torch.long)


def naive_amc(features, targets, margin):
    """The mean over pairs of the first half and the second."""
    half, costs = len(targets) // 2, []
    for i in range(half):
        a, b = features[i], features[half + i]
        if targets[i] < 0 or targets[half + i] < 0:
            continue
        theta = math.acos((a @ b / a.norm() / b.norm()).item())
        agree = targets[i] == targets[half + i]
        costs.append(theta**2 if agree else max(0.0, margin - theta) ** 2)
    return sum(costs) / len(costs) if costs else 0.0


def test_center_loss_is_the_squared_distance(targets):
    features, centers = rows(len(targets)), rows(C, seed=1)
    found = center_loss(features, targets, centers)
    assert found.shape == targets.shape
    for x, y, value in zip(features, targets.tolist(), found.tolist(), strict=True):
        expected = sum((a - b) ** 2 for a, b in zip(x.tolist(), centers[y].tolist(), strict=True))
        assert value == pytest.approx(expected if y >= 0 else 0.0)


def test_center_loss_of_class_probabilities_weighs_every_distance():
    features, centers, weight = rows(4), rows(C, seed=1), torch.tensor([0.5, 2.0, 7.0]).double()
    shares = torch.softmax(rows(4, seed=2)[:, :C], dim=1)
    expected = (shares * weight * torch.cdist(features, centers).square()).sum(1)
    torch.testing.assert_close(center_loss(features, shares, centers, weight), expected)


@pytest.mark.parametrize("margin", [0.5, 2.0])
def test_amc_mean_is_the_mean_over_pairs(targets, margin):
    features = rows(len(targets))
    found = amc_loss(features, targets, margin)
    assert found.shape == targets.shape
    counted = max(1, (targets >= 0).sum().item())
    assert found.sum().item() / counted == pytest.approx(naive_amc(features, targets, margin))


def test_amc_pairs_by_true_labels():
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1]], dtype=torch.float64)
    theta = math.atan(0.1)
    together = amc_loss(features, torch.tensor([1, 1])).mean().item()
    apart = amc_loss(features, torch.tensor([1, 0])).mean().item()
    assert together == pytest.approx(theta**2)
    assert apart == pytest.approx((0.5 - theta) ** 2)


def test_amc_teaches_pairs_in_the_right_direction():
    for labels, sign in (([0, 0], 1), ([0, 1], -1)):
        features = torch.tensor([[1.0, 0.0], [1.0, 0.2]], requires_grad=True)
        amc_loss(features, torch.tensor(labels)).mean().backward()
        assert sign * features.grad[1, 1] > 0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("labels", [[0, 0], [0, 1]])
def test_amc_gradient_is_finite_at_exact_directions(sign, labels):
    features = torch.tensor([[0.3, 0.4], [0.3 * sign, 0.4 * sign]], requires_grad=True)
    amc_loss(features, torch.tensor(labels)).sum().backward()
    assert features.grad.isfinite().all()


def test_gradients():
    features, centers = rows(6).requires_grad_(), rows(C, seed=1).requires_grad_()
    targets = torch.tensor(LABELS["mixed"])
    assert torch.autograd.gradcheck(lambda x, c: center_loss(x, targets, c), (features, centers))
    assert torch.autograd.gradcheck(lambda x: amc_loss(x, targets, 2.0), features)
