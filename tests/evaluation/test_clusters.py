import numpy as np
import pytest
import scipy.linalg
import torch
from evaluation.clouds import DEVICES, cloud
from sklearn import metrics

from torchlace.evaluation import (
    agreement,
    cluster_scores,
    davies_bouldin,
    effective_rank,
    fisher_score,
    kmeans,
)

CLOUDS = [
    ((300, 8, 5), {}),
    ((1500, 64, 40), {"offset": 10.0}),
    ((1500, 16, 10), {"spread": 1e-2, "offset": 3.0}),
]


@pytest.fixture(params=CLOUDS)
def points_and_labels(request):
    shape, options = request.param
    return cloud(*shape, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_scores_against_scikit_learn(points_and_labels, device):
    points, labels = points_and_labels
    exact = points.double().numpy()
    found = cluster_scores(points.to(device), labels)
    assert found["davies_bouldin"] == pytest.approx(metrics.davies_bouldin_score(exact, labels))
    expected = metrics.calinski_harabasz_score(exact, labels)
    assert found["calinski_harabasz"] == pytest.approx(expected, rel=1e-5)
    for name in ("euclidean", "cosine"):
        key = "silhouette" + "_cosine" * (name == "cosine")
        expected = metrics.silhouette_score(exact, labels, metric=name)
        assert found[key] == pytest.approx(expected, abs=1e-7)
    clusters = kmeans(points, len(labels.unique()))
    expected = metrics.homogeneity_score(labels, clusters)
    assert found["kmeans_homogeneity"] == pytest.approx(expected, abs=1e-5)
    expected = metrics.completeness_score(labels, clusters)
    assert found["kmeans_completeness"] == pytest.approx(expected, abs=1e-5)


def test_davies_bouldin_of_classes_with_one_mean():
    points = torch.tensor([[-1.0], [1.0], [-2.0], [2.0], [9.0], [11.0]])
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    expected = metrics.davies_bouldin_score(points.numpy(), labels)
    assert davies_bouldin(points, labels) == pytest.approx(expected)


def test_davies_bouldin_is_the_same_at_any_scale(points_and_labels):
    points, labels = points_and_labels
    tiny = davies_bouldin(points.double() * 1e-12, labels)
    assert tiny == pytest.approx(davies_bouldin(points, labels))


def test_davies_bouldin_of_points_is_zero():
    points = torch.tensor([[1.0], [1.0], [2.0], [2.0]])
    assert davies_bouldin(points, torch.tensor([0, 0, 1, 1])) == 0


def scatters(points, labels):
    points, labels = points.double().numpy(), labels.numpy()
    total = (points - points.mean(0)).T @ (points - points.mean(0))
    within = sum(
        (part - part.mean(0)).T @ (part - part.mean(0))
        for part in (points[labels == label] for label in np.unique(labels))
    )
    return within, total - within


def test_fisher_is_the_sum_of_generalised_eigenvalues(points_and_labels):
    within, between = scatters(*points_and_labels)
    expected = scipy.linalg.eigh(between, within, eigvals_only=True).sum()
    assert fisher_score(*points_and_labels) == pytest.approx(expected, rel=1e-6)


def test_fisher_is_the_same_in_every_linear_map():
    points, labels = cloud(400, 6, 4)
    points = points.double()
    generator = torch.Generator().manual_seed(3)
    mapped = points @ torch.randn(6, 6, generator=generator, dtype=torch.float64) + 5
    assert fisher_score(mapped, labels) == pytest.approx(fisher_score(points, labels), rel=1e-8)


def test_fisher_leaves_out_features_that_are_always_zero():
    points, labels = cloud(400, 6, 4)
    wider = torch.cat([points, torch.zeros(400, 3)], dim=1)
    assert fisher_score(wider, labels) == pytest.approx(fisher_score(points, labels), rel=1e-8)


def test_effective_rank_is_that_of_the_singular_values(points_and_labels):
    points, _ = points_and_labels
    points = points.double().numpy()
    values = np.linalg.svd(points - points.mean(0), compute_uv=False)
    share = values / values.sum()
    expected = np.exp(-(share * np.log(share)).sum())
    assert effective_rank(torch.from_numpy(points).float()) == pytest.approx(expected, rel=1e-5)


def test_effective_rank_of_a_line_is_one():
    line = torch.arange(50.0)[:, None] * torch.tensor([[1.0, 2.0, 3.0]])
    assert effective_rank(line) == pytest.approx(1, abs=1e-5)


def test_agreement_against_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(30, (3000,), generator=generator)
    noise = torch.randint(30, (3000,), generator=generator)
    guesses = torch.where(torch.rand(3000, generator=generator) < 0.3, noise, labels)
    homogeneity, completeness = agreement(guesses, labels)
    assert homogeneity == pytest.approx(metrics.homogeneity_score(labels, guesses), abs=1e-5)
    assert completeness == pytest.approx(metrics.completeness_score(labels, guesses), abs=1e-5)


def test_agreement_is_never_above_one():
    labels = torch.arange(3000) % 40
    assert agreement(labels % 8, labels)[1] == 1
    assert max(max(agreement(labels % n, labels)) for n in range(1, 40)) == 1


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precisions_are_scored_as_what_they_stand_for(kind):
    points, labels = cloud(200, 6, 4, offset=30.0)
    points = (20 * points).to(kind)
    assert cluster_scores(points, labels) == cluster_scores(points.float(), labels)


def test_points_with_a_gradient_are_scored():
    points, labels = cloud(200, 6, 4)
    assert cluster_scores(points.requires_grad_(), labels) == cluster_scores(
        points.detach(), labels
    )


def test_kmeans_is_seeded_and_finds_what_is_apart():
    points, labels = cloud(500, 8, 6, spread=0.05)
    first = kmeans(points, 6, seed=1)
    assert torch.equal(first, kmeans(points, 6, seed=1))
    assert agreement(first, labels)[0] > 0.8
