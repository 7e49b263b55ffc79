import os
import sys

import numpy
import pytest
import torch
import typer
from cli.inside import torchlace, trained
from experiments.grids import GRID
from PIL import Image
from training import processes

from torchlace.cli.common import plain_errors

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join(9 * [f'*a{i - 1}'])}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "digit"), "did you mean 'digits'?"),
        (("--head", "lacy"), "did you mean 'lace'"),
        (("--head", "LACE"), "did you mean 'lace'"),
        (("--backbone", "resnet81"), "did you mean 'resnet18'"),
        (("--optimizer", "adm"), "did you mean 'adam'"),
        (("--schedule", "cosinus"), "did you mean 'cosine'"),
        (("--protocol", "papers"), "did you mean 'paper'"),
        (("--head-option", "marginal=1"), "unknown option of LACE 'marginal': "),
        (("--head-option", "ridge=.1"), "background_options={'ridge': ...}"),
        (("--head-option", "background_options={rigde: .1}"), "did you mean 'ridge'"),
        (("--head-option", "margin"), "--head-option takes NAME=VALUE, got 'margin'"),
        (("--head-option", "scale={"), "--head-option 'scale={' is not valid YAML: while parsing"),
        (("--head-option", "x=" + 5000 * "["), "is nested more than 50 deep"),
        (("--head-option", "device=cuda"), "a head of a run takes no option device: --device"),
        (("--log", "wandbb"), "did you mean 'wandb'"),
        (("--lr", "-1"), "lr must lie in (0, inf), got -1.0"),
        (("--epochs", "0"), "epochs must be at least 1, got 0"),
        (("--seed", "-1"), "seed must be at least 0, got -1"),
        (("--seed", 10**20), "seed must be at most 10,000,000,000,000, got 1000"),
        (("--lr", "1e300"), "lr must be at most 1e+37, got 1e+300"),
        (("--devices", 10**20), "devices must be at most 10,000, got 1000"),
        (("--image-size", 10**5), "image_size must be at most 10,000, got 100000"),
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
        ("loggers: 3\n", "loggers in a.yaml must be a list of texts, got 3"),
        ("imports: [a.py, 3]\n", "imports in a.yaml must be a list of texts, got ['a.py', 3]"),
        ("- a\n- b\n", "a.yaml must hold `name: value` lines, got list"),
        ("head: [\n", "a.yaml is not valid YAML"),
        ("head: lace\nhead: amc\n", "a.yaml has the key 'head' twice, in lines 1 and 2"),
        ("head_options: " + 5000 * "{a: ", "a.yaml is nested more than 50 deep in line 1"),
        (LAUGHS, "a.yaml would grow by more than 10,000 values where its aliases repeat"),
        ("head: \0\n", "a.yaml is not valid YAML: unacceptable character #x0000"),
        ("head: \udcff\n", "a.yaml is not UTF-8 text (see byte 6): save it as UTF-8"),
    ],
)
def test_a_wrong_file_is_an_error_that_names_it(text, message, tmp_path):
    (tmp_path / "a.yaml").write_bytes(text.encode(errors="surrogateescape"))
    for command in (("train", "--config"), ("config",)):
        done = torchlace(*command, "a.yaml", folder=tmp_path)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert done.err.startswith("error: ")
        assert message in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"title: {5000 * '['}\n{GRID}", "g.yaml is nested more than 50 deep in line 1"),
        (LAUGHS + GRID, "g.yaml would grow by more than 10,000 values"),
        (GRID.replace("seeds: 2", f"seeds: {10**20}"), "seeds in g.yaml must be at most 10,000"),
    ],
)
def test_a_grid_that_would_never_end_is_an_error(text, message, tmp_path):
    (tmp_path / "g.yaml").write_text(text)
    done = torchlace("reproduce", "g.yaml", folder=tmp_path)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith(f"error: {message}")


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
        (("train", "--data", "photso"), "did you mean 'photos'?"),
        (("train", "--config", "a.yaml"), "did you mean 'photos'?"),
        (("data", "check", "./photo"), "did you mean 'photos'?"),
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
    (trained(tmp_path, "--epochs", 1) / "result.json").write_text("{")
    done = torchlace("train", "--epochs", "1", "--run", "run", folder=tmp_path)
    assert done.code == 1
    assert "error: run/result.json is damaged" in done.err
    assert "train the run anew: train --overwrite does" in done.err


@pytest.mark.parametrize("make", [numpy.empty, torch.empty])
def test_too_little_memory_is_one_line(make, capsys):
    with pytest.raises(typer.Exit), plain_errors():
        make(10**15)
    said = capsys.readouterr().err
    assert said.startswith("error: there is not enough memory (")
    assert (said.count("\n"), "a smaller --batch-size" in said) == (1, True)


def fill():
    os.dup2(os.open("/dev/full", os.O_WRONLY), sys.stdout.fileno())


@pytest.mark.parametrize("form", [("--json",), ("--csv",), ()])
def test_output_that_can_not_be_written_is_an_error_in_a_line(form, tmp_path):
    trained(tmp_path, "--epochs", 1)
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    done = processes.torchlace("predict", "run", "a.png", *form, folder=tmp_path, patch=fill)
    assert done.code == 1
    assert done.err == "error: the output could not be written: No space left on device\n"


def test_an_option_of_the_background_is_shown_as_the_command_line_takes_it(tmp_path):
    short = ("train", "--epochs", "1", "--run", "run", "--head-option")
    done = torchlace(*short, "ridge=0.1", folder=tmp_path)
    assert done.code == 1
    hint = done.err.split("--head-option ")[1].strip().strip("'")
    assert hint == "background_options={ridge: ...}"
    assert torchlace(*short, hint.replace("...", "0.1"), folder=tmp_path).code == 0
