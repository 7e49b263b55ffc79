import subprocess
import sys

import pytest
from experiments.grids import GRID
from PIL import Image
from training.processes import torchlace


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "digit"), "did you mean digits?"),
        (("--head", "lacy"), "did you mean 'lace'"),
        (("--head", "LACE"), "did you mean 'lace'"),
        (("--backbone", "resnet81"), "did you mean 'resnet18'"),
        (("--optimizer", "adm"), "did you mean 'adam'"),
        (("--schedule", "cosinus"), "did you mean 'cosine'"),
        (("--protocol", "papers"), "did you mean 'paper'"),
        (("--head-option", "marginal=1"), "unknown option of LACE 'marginal': "),
        (("--head-option", "shrinkage=.1"), "background_options={'shrinkage': ...}"),
        (("--head-option", "background_options={shrinkge: .1}"), "did you mean 'shrinkage'"),
        (("--head-option", "margin"), "--head-option takes NAME=VALUE, got 'margin'"),
        (("--log", "wandbb"), "did you mean 'wandb'"),
        (("--lr", "-1"), "lr must lie in (0, inf), got -1.0"),
        (("--epochs", "0"), "epochs must be at least 1, got 0"),
        (("--seed", "-1"), "seed must be at least 0, got -1"),
        (("--workers", "-1"), "workers must be at least 0, got -1"),
        (("--image-size", "0"), "size must be at least 1, got 0"),
        (("--embedding", "0"), "embedding must be at least 1, got 0"),
        (("--validation", "0.9"), "validation must lie in (0, 0.5), got 0.9"),
        (("--ema", "1.5"), "ema must lie in (0, 1), got 1.5"),
        (("--device", "cuda"), "there is no CUDA device here: use --device cpu"),
        (("--device", "mps"), "no MPS device here"),
        (("--device", "gpu"), "did you mean 'cuda'"),
        (("--strategy", "nonsense"), "nonsense"),
        (("--precision", "nonsense"), "nonsense"),
        (("--pretrained",), "small-cnn has no pretrained weights: leave pretrained off"),
        (("--backbone", "vgg11"), "vgg11 can't take images of 8 × 8 pixels (Given input size"),
        (
            ("--backbone", "vit_b_16", "--stem", "standard"),
            "vit_b_16 can't take images of 8 × 8 pixels (Wrong image height",
        ),
        (("--config", "nowhere.yaml"), "there is no configuration file nowhere.yaml"),
        (("--data", "cifar10", "--root", "empty"), "torchlace data fetch cifar10"),
    ],
)
def test_a_wrong_setting_is_one_line_and_leaves_no_run(arguments, message, tmp_path):
    done = torchlace("train", "--epochs", "1", "--run", "run", *arguments, folder=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hed: lace\n", "unknown setting in a.yaml 'hed': did you mean 'head'"),
        ("epochs: many\n", "epochs in a.yaml must be int, got 'many'"),
        ("loggers: wandb\n", "loggers in a.yaml must be a list, got 'wandb'"),
        ("loggers: 3\n", "loggers in a.yaml must be a list, got 3"),
        ("- a\n- b\n", "a.yaml must hold `name: value` lines, got list"),
        ("head: [\n", "a.yaml is not valid YAML"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(text, message, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    for command in (("train", "--config"), ("config",)):
        done = torchlace(*command, "a.yaml", folder=tmp_path)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("error: ")
        assert message in done.err
        assert "Traceback" not in done.err


def test_evaluate_says_what_is_missing(tmp_path):
    done = torchlace("evaluate", "nowhere", folder=tmp_path)
    assert done.code == 1
    assert done.err == "error: nowhere holds no run: there is no config.yaml\n"


def test_unknown_options_and_commands_are_usage_errors(tmp_path):
    assert torchlace("train", "--hed", "lace", folder=tmp_path).code == 2
    assert torchlace("trains", folder=tmp_path).code == 2
    assert torchlace("predict", folder=tmp_path).code == 2


def test_the_nearest_folder_is_proposed(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "grid.yaml").write_text(GRID.replace("data: digits", "data: photso"))
    (tmp_path / "a.yaml").write_text("data: Photo\n")
    for command, said in (
        (("train", "--data", "photso"), "did you mean photos?"),
        (("train", "--config", "a.yaml"), "did you mean photos?"),
        (("data", "check", "./photo"), "did you mean photos?"),
        (("reproduce", "grid.yaml"), "did you mean 'photos'?"),
    ):
        done = torchlace(*command, folder=tmp_path)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert said in done.err


@pytest.mark.parametrize("command", [("predict", "run", "."), ("train",), ("reproduce", "quick")])
def test_nvidia_s_devices_are_called_cuda(command, tmp_path):
    (tmp_path / "some.png").touch()
    done = torchlace(*command, "--device", "GPU", folder=tmp_path)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "did you mean" in done.err
    assert "cuda" in done.err


def test_a_damaged_result_is_named(tmp_path):
    command = ("train", "--epochs", "1", "--run", "run")
    assert torchlace(*command, folder=tmp_path).code == 0
    (tmp_path / "run" / "result.json").write_text("{")
    done = torchlace(*command, folder=tmp_path)
    assert done.code == 1
    assert "error: run/result.json is damaged: " in done.err
    assert "--overwrite trains the run anew" in done.err


@pytest.mark.parametrize("form", [("--json",), ("--csv",), ()])
def test_output_that_can_not_be_written_is_an_error_in_a_line(form, tmp_path):
    assert torchlace("train", "--epochs", "1", "--run", "run", folder=tmp_path).code == 0
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    command = [sys.executable, "-m", "torchlace.cli", "predict", "run", "a.png", *form]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output could not be written: No space left on device\n"


def test_an_option_of_the_background_is_shown_as_the_command_line_takes_it(tmp_path):
    short = ("train", "--epochs", "1", "--run", "run", "--head-option")
    done = torchlace(*short, "shrinkage=0.1", folder=tmp_path)
    assert done.code == 1
    hint = done.err.split("--head-option ")[1].strip().strip("'")
    assert hint == "background_options={shrinkage: ...}"
    assert torchlace(*short, hint.replace("...", "0.1"), folder=tmp_path).code == 0
