"""Muon: against the polar factor, against AdamW, and learning."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.linalg import polar
from torch import nn

from torchlace.models import Classifier
from torchlace.runs import RunError
from torchlace.training import TrainConfig, make_classifier, train
from torchlace.training.optim import Muon, make_optimizer, orthogonal


@given(st.data())
def test_orthogonal_has_the_directions_of_the_polar_factor(data):
    rows, columns = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    values = data.draw(arrays("float64", (rows, columns), elements=st.integers(-9, 9)))
    matrix = torch.from_numpy(values)
    singular = torch.linalg.svdvals(matrix)
    turned = orthogonal(matrix[None])[0]
    # A direction that hardly exists isn't brought to one in five rounds.
    assume(singular.min() > 0.1 * matrix.norm())
    nearest = torch.from_numpy(polar(values)[0])
    # Between the nearest orthogonal matrix and what comes out only the singular values differ.
    stretch = turned @ nearest.T if rows <= columns else nearest.T @ turned
    torch.testing.assert_close(stretch, stretch.T, rtol=0, atol=1e-9)
    found = torch.linalg.eigvalsh(stretch)
    assert found.min() > 0.6
    assert found.max() < 1.3


def test_orthogonal_of_nothing_is_nothing():
    assert not orthogonal(torch.zeros(2, 3, 4)).any()


def test_what_is_not_turned_gets_the_step_of_adamw():
    def ends(kind, **options):
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        groups = [{"params": list(layer.parameters()), **options}]
        optimizer = kind(groups, lr=0.1, weight_decay=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()
        return layer.weight.detach()

    torch.testing.assert_close(
        ends(Muon, orthogonal=False), ends(torch.optim.AdamW), rtol=0, atol=0
    )


def test_a_step_is_as_long_as_one_of_adam():
    weight = nn.Parameter(torch.zeros(64, 16, 3, 3))
    weight.grad = torch.randn(64, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    Muon([{"params": [weight], "orthogonal": True}], lr=0.1, weight_decay=0.0).step()
    assert 0.1 * 0.2 * 0.7 < weight.detach().square().mean().sqrt() < 0.1 * 0.2 * 1.2


def test_kernels_of_the_backbone_are_turned_and_nothing_else():
    config = TrainConfig(optimizer="muon", weight_decay=0.1, backbone="small-cnn")
    model = make_classifier(config, 1, 8, 10)
    assert isinstance(model, Classifier)
    decayed = [name for name, each in model.named_parameters() if each.dim() > 1]
    made = make_optimizer(config, model, decayed, torch.device("cpu"), capturable=False)
    names = {each: name for name, each in model.named_parameters()}
    turned = {
        names[each]
        for group in made.param_groups
        if group["orthogonal"]
        for each in group["params"]
    }
    assert turned == {name for name in decayed if name.startswith("backbone.")}
    assert sum(len(group["params"]) for group in made.param_groups) == len(names)


def test_fsdp_is_refused():
    config = TrainConfig(optimizer="muon", strategy="fsdp")
    with pytest.raises(RunError, match="whole matrices"):
        make_optimizer(config, nn.Linear(2, 2), [], torch.device("cpu"), capturable=False)


def test_it_learns_digits_in_a_few_epochs(tmp_path):
    shared = {"schedule": "one-cycle", "epochs": 4, "head": "softmax"}
    reached = train(TrainConfig(optimizer="muon", lr=0.05, **shared), tmp_path / "muon")
    adam = train(TrainConfig(optimizer="adam", lr=0.01, **shared), tmp_path / "adam")
    assert reached["test_accuracy"] > max(94, adam["test_accuracy"])
