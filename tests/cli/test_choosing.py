"""What `train` chooses for images of one's own, and says before the first epoch."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
import yaml
from cli.inside import torchlace
from cli.pictures import as_folder, as_npz, write
from PIL import Image
from training.processes import outcome

from torchlace.runs.recipes import read_recipe
from torchlace.training import Reporter, TrainConfig, train
from torchlace.training.choices import OPEN, batch_for, choose_network, epochs_for


def settings(folder):
    return TrainConfig.from_yaml(folder / "run" / "config.yaml")


def test_settings_left_open_follow_the_images_and_the_device(tmp_path):
    write(tmp_path / "pictures")
    Image.new("L", (30, 20)).save(tmp_path / "pictures" / "digit 3" / "odd.png")
    command = ("train", "--data", "pictures", "--run", "run", "--patience", 2)
    done = torchlace(*command, folder=tmp_path)
    assert done.code == 0
    chosen = settings(tmp_path)
    assert (chosen.backbone, chosen.batch_size, chosen.pretrained) == ("small-cnn", 16, False)
    assert 59 <= chosen.epochs <= 100
    assert (chosen.schedule, chosen.optimizer, chosen.patience) == ("one-cycle", "muon", 2)
    assert chosen.lr == pytest.approx(0.02 / 8)  # batches are smaller by 64
    said, first = done.err.index("training with\n"), done.err.index("epoch 1/")
    assert "the size of the others: 1 of 601 images (digit 3/odd.png)" in done.err[:said]
    lines = done.err[said:first].splitlines()[1:]
    rows, name = {}, ""
    for line in lines:
        name = line[2:12].strip() or name
        rows[name] = f"{rows.get(name, '')} {line[12:]}".strip()
    assert list(rows) == [
        *("images", "classes", "size", "network", "batch", "epochs", "device", "mixed", "time"),
        "for more",
    ]
    assert max(map(len, lines)) <= 80
    assert rows["images"] == "433 to train, 48 to validate, 120 to test"
    assert rows["classes"].startswith("10: digit 0, digit 1,")
    assert rows["size"] == "8 × 8, grey"
    assert rows["batch"] == "16 images, 27 steps an epoch"
    assert rows["epochs"].startswith(f"{chosen.epochs} at most")
    assert f"for {chosen.epochs} epochs" in rows["time"]
    assert "--backbone resnet18 --pretrained" in rows["for more"]


@pytest.mark.parametrize(
    ("images", "device", "batch"),
    [(20_000, "cuda", 1024), (12_000, "cuda", 512), (20_000, "cpu", 256), (500, "cpu", 16)],
)
def test_a_network_that_starts_from_nothing_learns_by_the_recipe(images, device, batch):
    fit = Images(range(images))
    fit.device = torch.device(device)
    inputs = SimpleNamespace(fit=fit)
    found = choose_network(TrainConfig(data="photos"), OPEN, inputs)
    recipe = read_recipe("strong")
    for name in ("optimizer", "cutmix", "crop", "weight_decay", "weights", "schedule"):
        assert getattr(found, name) == recipe[name]
    assert found.batch_size == batch
    assert found.lr == pytest.approx(recipe["lr"] * (batch / recipe["batch_size"]) ** 0.5)
    kept = [name for name in OPEN if name not in ("cutmix", "weight_decay")]
    found = choose_network(TrainConfig(data="photos", weight_decay=0.3), kept, inputs)
    assert (found.optimizer, found.cutmix, found.weight_decay) == ("muon", 0.0, 0.3)
    for other in ({"strategy": "fsdp"}, {"optimizer": "adam"}, {"pretrained": True}):
        open_ = [name for name in OPEN if name not in other]
        found = choose_network(TrainConfig(data="photos", **other), open_, inputs)
        assert (found.optimizer, found.schedule) == ("adam", "one-cycle")
        assert found.lr == (1e-3 if "pretrained" in other else 3e-3)


class Images(list):
    """So many images on a device."""


def test_what_is_given_is_kept_and_a_begun_run_keeps_what_it_has(tmp_path):
    as_npz(tmp_path)
    command = ("train", "--data", "pack.npz", "--run", "run")
    given = ("--batch-size", 64, "--epochs", 1)
    assert torchlace(*command, *given, folder=tmp_path).code == 0
    first = settings(tmp_path)
    assert (first.batch_size, first.epochs, first.backbone) == (64, 1, "small-cnn")
    again = torchlace(*command, folder=tmp_path)
    assert (again.code, settings(tmp_path)) == (0, first)
    assert "finished already" in again.err
    refused = torchlace(*command, "--batch-size", 32, folder=tmp_path)
    assert "batch_size: 64 → 32" in refused.err
    anew = torchlace(*command, "--overwrite", "--epochs", 1, folder=tmp_path)
    assert (anew.code, settings(tmp_path).batch_size) == (0, 16)


def test_a_recipe_takes_smaller_batches_of_few_images(tmp_path):
    as_npz(tmp_path)
    command = ("train", "--data", "pack.npz", "--recipe", "fast", "--quiet", "--epochs", 1)
    assert torchlace(*command, "--run", "run", folder=tmp_path).code == 0
    chosen = settings(tmp_path)
    assert (chosen.batch_size, chosen.lr) == (16, pytest.approx(0.02 / 8))
    assert chosen.optimizer == "muon"
    other = (*command, "--optimizer", "sgd", "--run", "other")
    refused = torchlace(*other, folder=tmp_path)
    assert "0.02, is for muon: give --lr with --optimizer sgd" in refused.err
    assert torchlace(*other, "--lr", 0.1, folder=tmp_path).code == 0
    given = ("--batch-size", 64, "--lr", 0.1, "--run", "run", "--overwrite")
    assert torchlace(*command, *given, folder=tmp_path).code == 0
    assert (settings(tmp_path).batch_size, settings(tmp_path).lr) == (64, 0.1)


def test_settings_of_a_file_are_given_too(tmp_path):
    as_npz(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"batch_size": 100, "epochs": 1}))
    command = ("train", "--config", "mine.yaml", "--data", "pack.npz", "--run", "run", "--quiet")
    assert torchlace(*command, folder=tmp_path).code == 0
    chosen = settings(tmp_path)
    assert (chosen.batch_size, chosen.backbone) == (100, "small-cnn")
    assert (chosen.epochs, chosen.patience, chosen.schedule) == (1, 45, "one-cycle")
    assert chosen.lr == pytest.approx(0.02 * (100 / 1024) ** 0.5)


@pytest.mark.parametrize(
    "more", [("--data", "digits"), ("--data", "pack.npz", "--protocol", "paper")]
)
def test_named_sets_and_the_paper_protocol_have_the_settings_of_the_paper(more, tmp_path):
    as_npz(tmp_path)
    small = () if "digits" in more else ("--backbone", "small-cnn", "--images", 20)
    done = torchlace("train", *more, *small, "--epochs", 1, "--run", "run", folder=tmp_path)
    chosen = settings(tmp_path)
    assert (done.code, chosen.batch_size) == (0, 256)
    assert (chosen.schedule, chosen.lr, chosen.patience) == ("constant", 1e-3, 10)
    assert "training with\n" in done.err


def test_a_network_that_can_do_what_was_asked_for(tmp_path):
    as_npz(tmp_path)
    command = ("train", "--data", "pack.npz", "--run", "run", "--epochs", 1, "--images", 20)
    assert torchlace(*command, "--norm-batches", 1, folder=tmp_path).code == 0
    assert settings(tmp_path).backbone == "resnet18"


class Asking(Reporter):
    def begin(self, epochs, choices):
        self.said = choices()


def test_measuring_changes_nothing_and_python_chooses_only_where_asked(tmp_path):
    config = TrainConfig(data=str(as_folder(tmp_path)), epochs=2, backbone="small-cnn")
    asking = Asking()
    train(config, tmp_path / "chosen", choose=["batch_size"], reporter=asking)
    train(dataclasses.replace(config, batch_size=16), tmp_path / "given")
    assert outcome(tmp_path / "chosen") == outcome(tmp_path / "given")
    assert asking.said["batch"] == "16 images, 27 steps an epoch"
    with pytest.raises(ValueError, match="unknown setting to choose 'clip'"):
        train(config, tmp_path / "odd", choose=["clip"])
    assert set(OPEN) <= {each.name for each in dataclasses.fields(TrainConfig)}


@pytest.mark.parametrize("images", [1, 7, 8, 120, 127, 128, 432, 4095, 4096, 10**6])
def test_an_epoch_has_steps_enough(images):
    for most in (256, 1024):
        batch = batch_for(images, most)
        assert 8 <= batch <= most
        assert batch == 8 or images // batch >= 16
        assert batch == most or images // (2 * batch) < 16


def test_epochs_end_in_minutes():
    assert [epochs_for(each, 100) for each in (1e-4, 1.8, 3, 1000)] == [100, 100, 60, 20]
    assert [epochs_for(each, 1) for each in (1e-4, 3, 1000)] == [100, 60, 60]


@pytest.mark.parametrize(
    "wrong", [("--head", "lase"), ("--backbone", "resnet81"), ("--head-option", "sale=3")]
)
def test_wrong_names_are_told_before_any_image_is_opened(wrong, tmp_path):
    write(tmp_path / "pictures")
    (tmp_path / "pictures" / "digit 3" / "broken.png").write_bytes(b"")
    done = torchlace("train", "--data", "pictures", "--run", "run", *wrong, folder=tmp_path)
    assert done.code == 1
    assert "did you mean" in done.err
    assert "broken" not in done.err
    assert len(done.err) < 200
    assert not (tmp_path / "run").exists()
