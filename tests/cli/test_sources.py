import numpy as np
import pytest
import yaml
from cli.inside import torchlace
from cli.pictures import COUNT, FORMS, TESTED, TRAIN, as_folder, digits, write
from PIL import Image
from safetensors.torch import load_file
from training import processes


@pytest.mark.parametrize("form", FORMS)
def test_train_evaluate_predict(form, tmp_path):
    source = FORMS[form](tmp_path)
    result = torchlace(*TRAIN, "--data", source, "--run", "run", folder=tmp_path).json()
    assert result["test_accuracy"] > 80
    assert result["test_images"] == (COUNT // 5 if form == "folder" else TESTED)

    scores = torchlace("evaluate", "run", "--json", folder=tmp_path).json()
    assert scores["accuracy"] == result["test_accuracy"]
    assert scores["loss"] == pytest.approx(result["test_loss"], rel=1e-5)
    assert scores["calibrated_loss"] == pytest.approx(result["test_calibrated_loss"], rel=1e-5)
    assert list(scores["classes"]) == [f"digit {label}" for label in range(10)]

    wanted = {str(path): label for path, label, _ in write(tmp_path / "new")}
    found = torchlace("predict", "run", tmp_path / "new", "--json", folder=tmp_path).json()
    assert {each["image"] for each in found} == set(wanted)
    right = [each["classes"][0]["class"] == wanted[each["image"]] for each in found]
    assert sum(right) > 0.8 * len(right)


def test_the_digits_themselves(tmp_path):
    """In processes of their own, like nobody else here."""
    train = processes.torchlace("train", "--epochs", 2, "--json", folder=tmp_path)
    result = train.json()
    assert (train.code, result["run"]) == (0, "runs/digits-lace-0")
    evaluate = processes.torchlace("evaluate", result["run"], "--json", folder=tmp_path)
    assert (evaluate.code, evaluate.json()["accuracy"]) == (0, result["test_accuracy"])
    write(tmp_path / "new")
    predict = processes.torchlace("predict", result["run"], "new", "--json", folder=tmp_path)
    assert (predict.code, len(predict.json())) == (0, COUNT)


@pytest.mark.parametrize(
    ("options", "channels"),
    [(("--protocol", "paper", "--backbone", "small-cnn"), 3), (("--batch-size", 16), 1)],
)
def test_the_paper_protocol_and_the_default_backbone(options, channels, tmp_path):
    images, labels = digits()
    few = {"x_train": images[:60], "y_train": labels[:60]}
    np.savez(tmp_path / "few.npz", **few, x_test=images[60:90], y_test=labels[60:90])
    command = ("train", "--data", "few.npz", "--epochs", 1, "--json", "--run", "run", *options)
    result = torchlace(*command, folder=tmp_path).json()
    scores = torchlace("evaluate", "run", "--json", folder=tmp_path).json()
    assert scores["accuracy"] == result["test_accuracy"]
    assert scores["loss"] == pytest.approx(result["test_loss"], rel=1e-4)
    weights = load_file(tmp_path / "run" / "best.safetensors")
    first = next(value for value in weights.values() if value.dim() == 4)
    assert first.shape[1] == channels
    picture, _, _ = write(tmp_path / "new")[0]
    (only,) = torchlace("predict", "run", picture, "--json", folder=tmp_path).json()
    assert len(only["classes"]) == 3


def test_a_bad_image_is_named_or_left_out(tmp_path):
    folder = as_folder(tmp_path)
    bad = folder / "digit 3" / "0003.png"
    bad.write_bytes(bad.read_bytes()[:60])
    command = (*TRAIN[:3], "--epochs", 1, "--json", "--data", folder, "--run", "run")
    strict = torchlace(*command, folder=tmp_path)
    assert strict.code == 1
    assert "error: 1 image can't be used" in strict.err
    assert str(bad) in strict.err
    assert "Traceback" not in strict.err
    result = torchlace(*command, "--skip-bad", folder=tmp_path)
    assert result.code == 0, result.err
    assert torchlace("evaluate", "run", "--json", folder=tmp_path).code == 0


def test_what_was_left_out_is_counted_and_listed(tmp_path):
    folder = as_folder(tmp_path)
    bad = folder / "digit 3" / "0003.png"
    bad.write_bytes(b"")
    command = (*TRAIN[:3], "--epochs", 1, "--data", folder, "--run", "run", "--skip-bad")
    done = torchlace(*command, folder=tmp_path)
    assert done.code == 0
    assert str(bad) in done.err
    left_out = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["run"]["skipped"]
    assert left_out == [f"{bad}: empty file"]


def test_test_images_are_not_drawn_anew_from_data_that_changed(tmp_path):
    source = FORMS["folder"](tmp_path)
    torchlace(*TRAIN[:3], "--epochs", 1, "--data", source, "--run", "run", folder=tmp_path)
    done = torchlace("evaluate", "run", "--json", folder=tmp_path)
    next(source.glob("digit 1/*.png")).unlink()
    # Test images drawn from what is left would be among those it learned from.
    refused = torchlace("evaluate", "run", "--json", "--refresh", folder=tmp_path)
    assert refused.code == 1
    assert "has changed since the run was trained on it" in refused.err
    kept = torchlace("evaluate", "run", "--json", folder=tmp_path)
    assert kept.json() == done.json()
    assert kept.err.endswith("; features kept earlier are used\n")


def test_the_split_of_a_source_that_has_one_stays(tmp_path):
    source = FORMS["split folder"](tmp_path)
    torchlace(*TRAIN[:3], "--epochs", 1, "--data", source, "--run", "run", folder=tmp_path)
    next(source.glob("train/digit 1/*.png")).unlink()
    done = torchlace("evaluate", "run", "--json", folder=tmp_path)
    assert done.code == 0
    assert done.err == "note: the data differ from those the run was trained on\n"


def test_a_folder_with_the_name_of_a_known_set_is_pointed_out(tmp_path):
    as_folder(tmp_path).rename(tmp_path / "digits")
    done = torchlace("train", "--epochs", 1, "--run", "run", folder=tmp_path)
    assert done.code == 0
    assert "--data ./digits is what lies here" in done.err
    (tmp_path / "digits").rename(tmp_path / "cifar10")
    missing = torchlace("train", "--data", "cifar10", "--root", tmp_path, folder=tmp_path)
    assert missing.code == 1
    assert "the cifar10 here is meant by --data ./cifar10" in missing.err


def test_an_epoch_of_one_step_is_pointed_out(tmp_path):
    images, labels = digits()
    few = {"x_train": images[:60], "y_train": labels[:60]}
    np.savez(tmp_path / "few.npz", **few, x_test=images[60:90], y_test=labels[60:90])
    command = ("train", "--data", "few.npz", "--backbone", "small-cnn", "--epochs", 1)
    done = torchlace(*command, "--batch-size", 256, "--run", "run", folder=tmp_path)
    assert "an epoch is 1 step of 50 images" in done.err
    assert "--batch-size" in done.err
    calm = torchlace(*command, "--run", "calm", folder=tmp_path)
    assert "an epoch is" not in calm.err


def test_files_that_differ_in_size_since_training_are_brought_to_the_size_of_the_run(tmp_path):
    source = FORMS["split folder"](tmp_path)
    command = (*TRAIN[:3], "--epochs", 1, "--json", "--data", source, "--run", "run")
    result = torchlace(*command, folder=tmp_path).json()
    Image.new("L", (30, 20)).save(source / "train" / "digit 1" / "odd.png")
    done = torchlace("evaluate", "run", "--json", folder=tmp_path)
    assert done.err == "note: the data differ from those the run was trained on\n"
    assert done.json()["accuracy"] == result["test_accuracy"]


def test_files_of_mixed_sizes_in_the_paper_protocol(tmp_path):
    for number, (path, _, _) in enumerate(write(tmp_path / "all")[:60]):
        side = (20, 300)[number % 2]
        target = tmp_path / "few" / path.parent.name / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).resize((side, side)).save(target)
    command = (*TRAIN[:3], "--protocol", "paper", "--epochs", 1, "--json", "--run", "run")
    result = torchlace(*command, "--data", "few", folder=tmp_path).json()
    done = torchlace("evaluate", "run", "--json", folder=tmp_path)
    assert done.err == ""
    assert done.json()["accuracy"] == result["test_accuracy"]
    recorded = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["run"]
    assert recorded["size"] == [256, 256]
