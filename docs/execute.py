"""Run the code of documentation pages, block after block, as a reader would.

    python docs/execute.py [docs/tutorial.md ...]

Each page runs in an empty folder of its own. Blocks of Python share one namespace; each line of a
block of `sh` is a command that must succeed (those that install packages are passed over).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAGES = ("tutorial", "heads", "deploy")
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, int, str]]:
    """The language, first line and text of each block that can be run."""
    text = page.read_text()
    return [
        (found[1], text.count("\n", 0, found.start(2)), found[2]) for found in BLOCK.finditer(text)
    ]


def execute(page: Path) -> None:
    """Run a page's blocks in the current folder; errors name the line of the page."""
    names: dict[str, object] = {"__name__": "__main__"}
    for language, line, text in blocks(page):
        if language == "python":
            exec(compile("\n" * line + text, str(page), "exec"), names)
            continue
        for command in text.splitlines():
            if command and not command.startswith("pip "):
                subprocess.run(command, shell=True, check=True)


def main(pages: list[str]) -> None:
    """Run pages, each in a process and folder of its own."""
    here = Path(__file__).resolve().parent
    for page in [Path(name).resolve() for name in pages] or [here / f"{n}.md" for n in PAGES]:
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            code = f"import execute, pathlib; execute.execute(pathlib.Path({str(page)!r}))"
            paths = os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            environment = {**os.environ, "PYTHONPATH": paths, "PATH": path}
            subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, check=True)
        print(f"{page.name}: {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
