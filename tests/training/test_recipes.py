"""Recipes, and the settings that they bring: mixed images, the last weights, decay by kind."""

import json
from types import SimpleNamespace

import pytest
import torch
import yaml
from cli import inside
from safetensors.torch import load_file
from torch import nn

import torchlace as tl
from torchlace.functional.targets import selected
from torchlace.runs import Run, TrainConfig
from torchlace.runs.recipes import NAMES, read_recipe, with_recipe
from torchlace.training import train
from torchlace.training.optim import make_optimizer
from torchlace.training.step import EagerStep

MIXED = {"mixup": 0.3, "cutmix": 0.3, "crop": "shift", "erase": 0.25, "weights": "last"}
SHORT = {"epochs": 12, "patience": 12, "batch_size": 64, "lr": 0.05}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_printed_with_the_settings_that_it_leaves_alone(name, tmp_path):
    said = inside.torchlace("config", "--recipe", name, folder=tmp_path)
    assert TrainConfig.from_dict(yaml.safe_load(said.out)) == TrainConfig(**read_recipe(name))


def test_plain_is_what_is_trained_without_a_recipe():
    assert TrainConfig(**read_recipe("plain")) == TrainConfig()


def test_a_cycle_of_another_length_comes_to_its_end():
    assert with_recipe("strong", {"epochs": 100})["patience"] == 100
    assert with_recipe("strong", {"epochs": 100, "patience": 3})["patience"] == 3
    assert with_recipe("plain", {"epochs": 400})["patience"] == 10


def test_options_win_over_a_recipe_and_a_file_is_one(tmp_path):
    (tmp_path / "mine.yaml").write_text("optimizer: sgd\nlr: 0.05\nepochs: 1\n")
    options = ("--lr", "0.01", "--run", "run")
    said = inside.torchlace("train", "--recipe", "mine.yaml", *options, folder=tmp_path)
    assert said.code == 0, said.err
    config = Run(tmp_path / "run").config()
    assert (config.optimizer, config.lr, config.epochs) == ("sgd", 0.01, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--recipe", "storng"), "unknown recipe 'storng': did you mean 'strong'?"),
        (("--recipe", "fast", "--config", "a.yaml"), "give one of them"),
        (("--mixup", "0.6", "--cutmix", "0.6"), "together at most 1"),
    ],
)
def test_what_can_t_be_is_said_before_anything_begins(options, says, tmp_path):
    said = inside.torchlace("train", *options, "--run", "run", folder=tmp_path)
    assert said.code == 1
    assert says in said.err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("head", ["softmax", "lace"])
def test_it_learns_from_mixed_images_and_keeps_the_last_weights(head, tmp_path):
    config = TrainConfig(head=head, **{**read_recipe("fast"), **MIXED, **SHORT})
    result = train(config, tmp_path)
    assert result["test_accuracy"] > 90
    assert result["best_epoch"] == result["epochs"] == 12
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)["model"]
    kept = load_file(tmp_path / "best.safetensors")
    assert all(torch.equal(kept[name], last[name]) for name in kept if name != "head.temperature")


def test_settings_that_mix_change_what_is_learned_and_nothing_else_is_drawn(tmp_path):
    """The same order of the images: of a head that scores all alike the first loss is the same."""
    results = [
        train(TrainConfig(epochs=1, head="softmax", **each), tmp_path / str(number))
        for number, each in enumerate(({}, {"cutmix": 1.0}, {"cutmix": 1.0}))
    ]
    plain, mixed, again = (json.dumps(each["test_loss"]) for each in results)
    assert plain != mixed == again


def test_matrices_and_kernels_decay_and_nothing_else():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    decayed = [name for name, each in model.named_parameters() if each.dim() > 1]
    config = TrainConfig(optimizer="adamw", lr=0.5, weight_decay=0.1)
    made = make_optimizer(config, model, decayed, torch.device("cpu"), capturable=False)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    for each in model.parameters():
        each.grad = torch.zeros_like(each)
    made.step()
    factors = {"0.weight": 0.95, "3.weight": 0.95}
    for name, each in model.named_parameters():
        torch.testing.assert_close(each.detach(), before[name] * factors.get(name, 1.0))


def test_processes_divide_mixed_losses_by_the_class_weights_of_the_whole_batch():
    head = tl.Softmax(5, 3)
    features, weight = torch.randn(8, 5), torch.tensor([0.5, 2.0, 7.0])
    first, second = torch.randint(3, (2, 8))
    whole = tl.Mixed(first, second, torch.rand(8))
    halves = [tl.Mixed(*(each[rank::2] for each in whole)) for rank in (0, 1)]
    masses = [selected(weight, half).sum() for half in halves]
    fabric = SimpleNamespace(
        world_size=2, device=torch.device("cpu"), all_reduce=lambda mine, reduce_op: sum(masses)
    )
    step = EagerStep(fabric, head, None, None, {"weight": weight}, None, None)
    parts = [step._loss(features[rank::2], half) for rank, half in enumerate(halves)]
    torch.testing.assert_close(sum(parts) / 2, head.loss(features, whole, weight=weight))
