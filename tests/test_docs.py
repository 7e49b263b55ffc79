"""The documentation: it builds, its links lead somewhere, and it is spelled rightly."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
PAGES += [ROOT / "results/README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_site_builds_strictly_with_all_links_and_anchors(tmp_path):
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        tmp_path,
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "theory.html").read_text()
    assert "<math" in page
    assert "\\(" not in page
    assert "LACE" in (tmp_path / "reference/heads.html").read_text()


def test_links_between_files_of_the_repository_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_words_are_spelled_rightly():
    command = [sys.executable, "-m", "codespell_lib", "-L", "nd,caf", "-S", "*.js", *PAGES]
    found = subprocess.run([*command, ROOT / "src"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("page", [*PAGES], ids=lambda page: page.stem)
def test_code_on_pages_is_python(page):
    for text in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        ast.parse(text)


def test_nothing_is_left_to_be_filled_in():
    left = [
        f"{page.name}: {word}"
        for page in PAGES
        for word in re.findall(r"\{[A-Z]{4,}\}", page.read_text())
    ]
    assert left == []
