"""How the command line starts: help, version, completion, missing packages."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli import inside
from training.processes import fresh, torchlace

import torchlace as tl
from torchlace.cli import common
from torchlace.data import KNOWN
from torchlace.experiments import experiment_names
from torchlace.models import create_backbone

COMMANDS = ["train", "evaluate", "compare", "predict", "report", "reproduce", "detect", "export"]
COMMANDS += ["heads", "config", "data"]
DATA_COMMANDS = ["list", "fetch", "import", "check", "show"]
HEAVY = ["torch", "numpy", "lightning", "torchvision", "sklearn", "matplotlib"]


def test_help_of_everything_without_heavy_imports(tmp_path):
    script = """if True:
        import contextlib, io, sys
        from torchlace.cli import app
        commands = sys.argv[1].split(";")
        for command in commands:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                try:
                    app([*command.split(), "--help"], prog_name="torchlace")
                except SystemExit as end:
                    assert end.code == 0, command
            assert f"Usage: torchlace {command}".strip() in out.getvalue(), command
        heavy = [name for name in sys.argv[2].split(";") if name in sys.modules]
        assert not heavy, heavy
        """
    commands = ["", *COMMANDS, *(f"data {name}" for name in DATA_COMMANDS)]
    done = fresh(";".join(commands), ";".join(HEAVY), folder=tmp_path, command=("-c", script))
    assert done.code == 0, done.err


def test_the_help_names_every_command(tmp_path):
    done = fresh("--help", folder=tmp_path)
    assert done.code == 0
    assert all(re.search(rf"│ {name} ", done.out) for name in COMMANDS)
    assert fresh(folder=tmp_path).out.strip() == done.out.strip()


def test_version(tmp_path):
    done = fresh("--version", folder=tmp_path)
    assert (done.code, done.out) == (0, f"{tl.__version__}\n")


def complete(words, folder):
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    asked["_TORCHLACE_COMPLETE"] = "complete_bash"
    return inside.torchlace(folder=folder, environment=asked).out.split()


def test_the_shell_completes_commands_and_options(tmp_path):
    assert complete("torchlace tr", tmp_path) == ["train"]
    assert complete("torchlace data ch", tmp_path) == ["check"]
    assert complete("torchlace train --label", tmp_path) == ["--label-smoothing"]


def test_the_shell_completes_values(tmp_path):
    assert complete("torchlace train --head lace-", tmp_path) == ["lace-learned", "lace-published"]
    assert complete("torchlace train --optimizer adamw", tmp_path) == ["adamw"]
    assert complete("torchlace data show cifar100", tmp_path) == ["cifar100", "cifar100-coarse"]
    assert complete("torchlace reproduce table", tmp_path) == [f"table{n}" for n in (1, 2, 3, 4)]
    # A file name, which the shell completes by itself where this has nothing to say.
    assert complete("torchlace train --data ./ph", tmp_path) == []


def test_the_values_that_are_completed_are_those_that_there_are():
    assert sorted(common.HEADS) == sorted(tl.heads.names())
    assert sorted(common.DATA) == sorted(KNOWN)
    assert common.experiments("") == sorted(experiment_names())
    for name in common.BACKBONES:
        assert create_backbone(name).num_features > 0


def test_the_completion_script_can_be_shown(tmp_path):
    script = Path(sys.executable).with_name("torchlace")
    done = subprocess.run(
        [script],
        env={**os.environ, "_TORCHLACE_COMPLETE": "source_bash"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "complete -o" in done.stdout
    assert "torchlace" in done.stdout


@pytest.mark.parametrize(
    ("missing", "arguments", "said"),
    [
        (
            "lightning",
            ("train", "--epochs", "1", "--devices", "2", "--device", "cpu"),
            "pip install 'torchlace[train]'",
        ),
        ("torchvision", ("train", "--backbone", "resnet18"), "pip install 'torchlace[train]'"),
        ("sklearn", ("train",), "pip install 'torchlace[train]'"),
        ("safetensors", ("train", "--epochs", "1"), "pip install 'torchlace[train]'"),
        ("tensorboard", ("train", "--epochs", "1"), "pip install 'torchlace[train]'"),
        ("yaml", ("config",), "pip install 'torchlace[train]'"),
        ("timm", ("train", "--backbone", "timm/resnet18"), "pip install 'torchlace[timm]'"),
        ("wandb", ("train", "--epochs", "1", "--log", "wandb"), "pip install wandb"),
        ("mlflow", ("train", "--epochs", "1", "--log", "mlflow"), "pip install mlflow"),
    ],
)
def test_a_missing_package_says_how_to_get_it(missing, arguments, said, tmp_path):
    block = tmp_path / "without"
    package = block / missing
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"raise ModuleNotFoundError('No module named {missing}')")
    done = torchlace(*arguments, folder=tmp_path, before_all_else=block)
    assert done.code == 1
    assert said in done.err
    assert done.told.startswith("error: ")
    assert done.told.count("\n") == 1


def test_without_any_extra_it_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['typer'] = None; import torchlace.cli"
    done = fresh(folder=tmp_path, command=("-c", script))
    assert done.code == 1
    assert done.err.splitlines()[-1].endswith("pip install 'torchlace[train]'")


def test_the_interpreter_can_run_it_as_a_module(tmp_path):
    done = fresh("heads", folder=tmp_path)
    assert done.code == 0
    assert all(f"│ {name} " in done.out for name in tl.heads.names())
