"""Heads, backgrounds, backbones and data sets of one's own, from the outside."""

import re
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from cli.pictures import as_folder
from training.processes import torchlace
from training.rewriting import rewrite_settings

from torchlace.experiments import Task
from torchlace.experiments.ray import run_remotely
from torchlace.runs import TrainConfig
from torchlace.runs.files import CONFIG, EVALUATION, LOG, RESULT

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
FILES = re.findall(r"```(?:python|yaml)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^torchlace .*", PAGE, re.MULTILINE)
MINE = """
from torchlace import CosFace, heads

open("ran", "a").write("mine ")

@heads.register("mine")
class Mine(CosFace):
    "CosFace, by another name."
"""
EVALUATE = ("evaluate", "runs/mine", "--json")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mine")
    (folder / "my heads.py").write_text(MINE)
    given = ("--import", "my heads.py", "--head", "mine", "--epochs", "1")
    assert torchlace("train", *given, "--run", "runs/mine", folder=folder).code == 0
    return folder


@pytest.fixture
def folder(trained, tmp_path):
    """A folder with a run by a head that is not built in, and without a sign of its code."""
    shutil.copytree(trained / "runs", tmp_path / "runs")
    return tmp_path


def ran(folder):
    return (folder / "ran").exists()


def test_the_examples_of_the_page(tmp_path):
    assert [name for name, _ in FILES] == [
        *("my_heads.py", "my_backgrounds.py", "my_backbones.py", "my_data.py", "mine.yaml")
    ]
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    done = [torchlace(*shlex.split(line)[1:], folder=tmp_path) for line in COMMANDS]
    assert [each.err for each in done if each.code] == []
    table = next(each.out for each in done if "Mine against softmax" in each.out)
    assert all(re.search(rf"{label}\W+\d+\.\d\d ± ", table) for label in ("Softmax", "Mine"))


def test_a_run_says_what_to_import_and_imports_nothing_itself(trained, folder):
    place = trained / "my heads.py"
    facts = yaml.safe_load((folder / "runs/mine/config.yaml").read_text())
    assert list(facts["run"]["imports"]) == [str(place)]
    assert "imports" not in facts
    for command in (
        EVALUATE,
        ("predict", "runs/mine", "runs"),
        ("export", "runs/mine"),
        ("compare", "runs/mine"),
        ("report", "runs/mine"),
        ("train", "--head", "mine", "--epochs", "1", "--run", "runs/mine"),
        ("train", "--config", "runs/mine/config.yaml", "--run", "runs/again"),
    ):
        (folder / "runs" / "image.png").touch()
        done = torchlace(*command, folder=folder)
        assert done.code == 1
        told = re.search(r"if you trust it, say so by (--import '.*')", done.out + done.err)
        assert told, done
        assert not ran(folder)
    (folder / "runs" / "image.png").unlink()
    done = torchlace(*EVALUATE, *shlex.split(told[1]), folder=folder)
    assert (done.code, done.err) == (0, "")
    given = (*shlex.split(told[1]), "--config", "runs/mine/config.yaml", "--run", "runs/again")
    assert torchlace("train", *given, folder=folder).code == 0
    again = yaml.safe_load((folder / "runs/again/config.yaml").read_text())
    assert again["run"]["imports"] == facts["run"]["imports"]


def test_a_file_that_lies_elsewhere_or_has_changed(trained, folder):
    shutil.copy(trained / "my heads.py", folder / "heads.py")
    assert torchlace(*EVALUATE, "--import", "heads.py", folder=folder).err == ""
    (folder / "my heads.py").write_text(MINE + "# longer\n")
    done = torchlace(*EVALUATE, "--import", "my heads.py", folder=folder)
    assert done.code == 0
    assert done.err == (
        f"warning: {folder / 'my heads.py'} has changed since runs/mine was trained with it: "
        "figures may differ\n"
    )
    (folder / "others.py").touch()
    assert "was trained with code of its own" in torchlace(
        *EVALUATE, "--import", "others.py", folder=folder
    ).err  # fmt: skip


def test_what_stands_in_a_run_from_elsewhere_is_not_imported(folder):
    """Nor is a setting of a run's config.yaml, by whatever command."""
    (folder / "evil.py").write_text(MINE)
    config = folder / "runs" / "mine" / "config.yaml"
    evil = {"imports": [str(folder / "evil.py")], "head": "lace"}
    rewrite_settings(config, lambda values: values.update(evil))
    rewrite_settings(config, lambda values: values["run"].pop("imports"))
    given = ("--config", config, "--run", "runs/again", "--epochs", "1")
    for command in (EVALUATE, ("config", config), ("config", "runs/mine"), ("train", *given)):
        torchlace(*command, folder=folder)
        assert not ran(folder)
    assert (folder / "runs" / "again" / "result.json").exists()
    rewrite_settings(config, lambda values: values["run"].update(imports=[3]))
    assert "imports under run:" in torchlace(*EVALUATE, folder=folder).err


def test_settings_in_a_file_import_what_they_name(trained, tmp_path):
    shutil.copy(trained / "my heads.py", tmp_path / "one.py")
    (tmp_path / "two.py").touch()
    (tmp_path / "a.yaml").write_text("imports: one.py\nhead: mine\nepochs: 3\n")
    given = ("train", "--config", "a.yaml", "--run", "mine")
    assert torchlace(*given, "--import", "two.py", folder=tmp_path).code == 0
    facts = yaml.safe_load((tmp_path / "mine" / "config.yaml").read_text())["run"]
    assert set(facts["imports"]) == {str(tmp_path / name) for name in ("one.py", "two.py")}
    (tmp_path / "mine" / "result.json").unlink()  # as a kill leaves it
    resumed = torchlace(*given, "--import", "two.py", folder=tmp_path)
    assert "resuming mine after epoch 3" in resumed.err
    assert (tmp_path / "ran").read_text() == "mine mine "


def test_a_task_of_a_cluster_imports_what_its_settings_name(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    quiet = tmp_path / "quiet heads.py"  # a task's process has the folder of whoever came first
    quiet.write_text(re.sub(r"^open.*$", "", MINE, flags=re.MULTILINE))
    config = TrainConfig(head="mine", epochs=1, imports=(str(quiet),))
    task = Task(config, inspect=True)
    code, files = run_remotely(task, str(tmp_path / "mine"), None, {})
    assert (code, files[LOG]) == (0, b"")
    assert str(quiet).encode() in files[CONFIG]
    assert RESULT in files
    assert EVALUATION in files


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f():\n    return 1 / 0\nf()", "division by zero (line 2: return 1 / 0)"),
        ("import nowhere", "No module named 'nowhere' (line 1: import nowhere)"),
        ("x = (", "SyntaxError: '(' was never closed (a.py, line 1)"),
        ("raise SystemExit('bye')", "SystemExit: bye (line 1:"),
        (
            "from torchlace import LACE, heads\nheads.register('lace', LACE)",
            "a head named 'lace' exists already: register yours by another name (line 2:",
        ),
    ],
)
def test_a_file_that_can_not_be_imported(text, said, tmp_path):
    (tmp_path / "a.py").write_text(text)
    done = torchlace("heads", "--import", "a.py", folder=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: {tmp_path / 'a.py'} can't be imported: ")
    assert said in done.err


def test_what_is_not_there_or_there_twice(trained, tmp_path):
    shutil.copy(trained / "my heads.py", tmp_path / "random.py")
    done = torchlace("heads", "--import", "a.py", folder=tmp_path)
    assert done.err == f"error: there is no file {tmp_path / 'a.py'} to import\n"
    done = torchlace("heads", "--import", "my_heads", folder=tmp_path)
    assert "there is no module 'my_heads' to import: install it, or name a file" in done.err
    twice = ("--import", "random.py", "--import", "./random.py", "--import", "colorsys")
    done = torchlace("heads", *twice, folder=tmp_path)
    assert (done.code, "CosFace, by another name." in done.out) == (0, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--head", "lcae"), "unknown head 'lcae': did you mean 'lace'"),
        (("--head-option", "scael=3"), "unknown option of LACE 'scael'"),
        (("--backbone", "resnet19"), "unknown backbone 'resnet19': did you mean 'resnet18'"),
        pytest.param(
            ("--backbone", "timm/resnet1"),
            "unknown backbone 'timm/resnet1'",
            marks=pytest.mark.skipif(find_spec("timm") is None, reason="timm is not installed"),
        ),
    ],
)
def test_unknown_names_are_told_before_images_are_read(given, said, tmp_path):
    bad = as_folder(tmp_path) / "digit 0" / "bad.png"
    bad.write_bytes(b"none")
    done = torchlace("train", "--data", "pictures", *given, folder=tmp_path)
    assert done.code == 1
    assert said in done.err
    assert not (tmp_path / "runs" / "pictures-lace-0").exists()
