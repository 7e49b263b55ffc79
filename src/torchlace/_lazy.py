"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(package: str, places: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package, so that importing it loads none of its modules.

    Args:
        package: the ``__name__`` of the package.
        places: names by the module of the package that defines them.

    Example:
        >>> lazy_names("torchlace.runs", {"files": ["CONFIG"]})("CONFIG")
        'config.yaml'
    """
    found = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{found[name]}"), name)

    return get
