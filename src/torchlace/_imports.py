"""Code of one's own: imported because its user names it, never because a run does."""

from __future__ import annotations

import hashlib
import importlib
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from torchlace._text import listed, setting

# What has been imported: absolute paths and names of modules, with the SHA-256 of their files.
_IMPORTED: dict[str, str] = {}


def import_code(name: str | Path) -> None:
    """Import a file or module of your own, so that what it registers is found by name.

    What is imported already stays as it is.

    Args:
        name: the path of a file that ends in ``.py``, or the name of a module.

    Example:
        >>> import tempfile
        >>> from torchlace import heads
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "wide.py")
        ...     _ = file.write_text('''
        ... from torchlace import CosFace, heads
        ...
        ... @heads.register("wide")
        ... class Wide(CosFace):
        ...     "CosFace, by another name."
        ... ''')
        ...     import_code(file)
        >>> heads.summary("wide")
        'CosFace, by another name.'
        >>> heads._REGISTRY.forget("wide")
    """
    import_all([str(name)])


def import_all(names: Iterable[str]) -> dict[str, str]:
    """Import files and modules; their absolute paths and names, with the SHA-256 of their files."""
    found = {}
    for name in map(_absolute, names):
        if not _is_imported(name):
            digest = _file_digest(name) if name.endswith(".py") else ""
            module = _run_file(name) if name.endswith(".py") else _import_module(name)
            _IMPORTED[name] = digest or _file_digest(module.__file__)
        found[name] = _IMPORTED[name]
    return found


def require_imported(owner: object, remembered: Mapping[str, str]) -> list[str]:
    """Raise unless the code that a run was trained with is imported; a warning if it has changed.

    The file that was imported may lie elsewhere: it is known by its content, or else by its name.

    Args:
        owner: the run, as messages call it.
        remembered: paths and names of modules with the SHA-256 of their files, as the run says.

    Returns:
        What is imported in their place.
    """
    texts = isinstance(remembered, dict) and [*remembered, *remembered.values()]
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"imports under run: of {owner} must be files and their SHA-256")
    here, missing = [], []
    for name, digest in remembered.items():
        same = [name] if _is_imported(name) else []
        same += [each for each in _IMPORTED if digest and _IMPORTED[each] == digest]
        same += [each for each in _IMPORTED if Path(each).name == Path(name).name]
        if not same:
            missing.append(name)
        elif digest not in [_IMPORTED[each] for each in same]:
            warnings.warn(
                f"{same[0]} has changed since {owner} was trained with it: figures may differ",
                UserWarning,
                stacklevel=3,
            )
        here += same[:1]
    if missing:
        again = " ".join(map(_spelled, missing))
        raise ImportError(
            f"{owner} was trained with code of its own ({listed(missing)}), and no run imports "
            f"code by itself: if you trust it, say so by {again}"
        )
    return here


def _spelled(name: str) -> str:
    option = setting("imports", shlex.quote(name))
    return option if option.startswith("-") else f"torchlace.import_code({name!r})"


def _absolute(name: str) -> str:
    return os.path.abspath(os.path.expanduser(name)) if name.endswith(".py") else name


def _is_imported(name: str) -> bool:
    """Whether code is imported, by this module or by Python itself."""
    if name not in _IMPORTED:
        for known, module in list(sys.modules.items()):
            file = getattr(module, "__dict__", {}).get("__file__")
            if known == name or (isinstance(file, str) and _same_file(file, name)):
                _IMPORTED[name] = _file_digest(file)
                break
    return name in _IMPORTED


def _same_file(file: str, path: str) -> bool:
    alike = os.path.basename(file) == os.path.basename(path)
    return alike and os.path.realpath(file) == os.path.realpath(path)


def _run_file(path: str) -> ModuleType:
    try:
        source = Path(path).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path} to import") from None
    # Not its own name alone, which may be that of another module, such as random.py.
    name = f"{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = path
    try:
        exec(compile(source, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ImportError(f"{path} can't be imported: {_blame(error, path)}") from error
    return module


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise ImportError(f"{name} can't be imported: {error}") from error
        raise ImportError(
            f"there is no module {name!r} to import: install it, or name a file that ends in .py"
        ) from None
    except (Exception, SystemExit) as error:
        raise ImportError(f"{name} can't be imported: {type(error).__name__}: {error}") from error


def _blame(error: BaseException, path: str) -> str:
    """What went wrong, and in which line of the file."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # which names its file and line itself
        return said
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == path]
    return f"{said} (line {frames[-1].lineno}: {frames[-1].line})" if frames else said


def _file_digest(path: str | None) -> str:
    """SHA-256 of a file; empty for a module that is none."""
    if path is None or not os.path.isfile(path):
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
