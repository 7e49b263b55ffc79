"""The package as a whole: what it imports, its layers, its types and its documentation."""

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.resources import files
from pathlib import Path

import pytest

import torchlace as tl

ROOT = Path(__file__).parents[1]
PUBLIC = [
    pytest.param(module, name, id=f"{module.__name__}.{name}")
    for module in (tl, tl.functional, tl.backgrounds, tl.heads)
    for name in module.__all__
]
SHOWN = [
    param
    for param in PUBLIC
    if param.values[0] is not tl and not hasattr(getattr(*param.values), "_fields")
]


def imported(statement):
    """Top-level modules loaded by ``statement`` in a fresh interpreter."""
    code = f"import sys, json\n{statement}\nprint(json.dumps([*sys.modules]))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(found.stdout)}


def test_imports_only_torch_and_numpy():
    extra = imported("import torchlace") - imported("import torch, numpy")
    assert extra - sys.stdlib_module_names == {"torchlace"}


def test_the_compiler_is_imported_by_those_who_compile():
    code = "import sys, torchlace.training; print('torch._dynamo' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def lint_imports(folder, path=None):
    program = Path(sys.executable).with_name("lint-imports")
    variables = dict(os.environ)
    if path is not None:
        variables["PYTHONPATH"] = str(path)
    return subprocess.run(
        [program, "--no-cache"], cwd=folder, env=variables, capture_output=True, text=True
    )


def test_layers_are_kept():
    found = lint_imports(ROOT)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("functional/scale.py", "from torchlace.backgrounds import Background"),
        ("backgrounds/base.py", "import torchlace.heads"),
    ],
)
def test_a_layer_that_looks_up_is_found_out(tmp_path, module, statement):
    shutil.copytree(ROOT / "src" / "torchlace", tmp_path / "torchlace")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target = tmp_path / "torchlace" / module
    target.write_text(target.read_text() + f"\n{statement}\n")
    found = lint_imports(tmp_path, tmp_path)
    assert found.returncode == 1, found.stdout
    assert "BROKEN" in found.stdout


def test_types_are_shipped():
    assert files("torchlace").joinpath("py.typed").is_file()


def test_version_is_that_of_the_distribution():
    assert tl.__version__ == metadata.version("torchlace")


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_public_names_are_documented(module, name):
    assert inspect.getdoc(getattr(module, name))


@pytest.mark.parametrize(("module", "name"), SHOWN)
def test_public_functions_and_classes_show_an_example(module, name):
    text = getattr(module, name).__doc__
    assert "Example:" in text
    assert ">>>" in text


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in (tl.heads, tl.backgrounds) for name in kind.names()]
)
def test_each_name_has_a_line_of_help(kind, name):
    line = kind.summary(name)
    assert len(line) < 100
    assert line.endswith(".")
    assert ":class:" not in line


@pytest.mark.parametrize(
    "name", [name for name in tl.heads.names() if not name.startswith("lace-")]
)
def test_each_head_names_its_paper(name):
    text = inspect.getdoc(type(tl.heads.create(name, 4, 3)))
    assert re.search(r'Paper: [\w .]+,\s"[^"]+",\s[^"]+\d{4}\.', text)
