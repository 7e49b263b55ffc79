"""What is found by its name, and loaded only then: heads, data sets, ..., packages, their names."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchlace._values import check_choice

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(Generic[T]):
    """The heads, backgrounds, backbones, data sets or measures that can be named.

    A package that is installed adds one by an entry point of the group ``torchlace.KINDs``; it is
    loaded when it is asked for.

    Args:
        kind: what they are, as messages call it: ``"head"``.
        known: those there are from the start.

    Example:
        >>> numbers = Registry("number", {"one": 1})
        >>> numbers.register("two", 2)
        2
        >>> list(numbers), numbers["two"]
        (['one', 'two'], 2)
    """

    def __init__(self, kind: str, known: Mapping[str, T]) -> None:
        self.kind = kind
        self._known = dict(known)

    def __getitem__(self, name: str) -> T:
        """What has this name; a ValueError with the nearest names where nothing has."""
        if name not in self._known:
            check_choice(self.kind, name, self)
            self._known[name] = self._load(self._offered[name])
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._known, *self._offered}))

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._offered

    def summary(self, name: str) -> str:
        """What it is, in a line: the first of its docstring."""
        line = (inspect.getdoc(self[name]) or "").partition("\n")[0]
        return re.sub(r":\w+:`~?([^`]+)`", r"\1", line)  # without the marks of the documentation

    def register(self, name: str, thing: T | None = None) -> Any:
        """Add a thing of one's own, or be the decorator that does; a name taken is an error."""
        if thing is None:
            return functools.partial(self.register, name)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ValueError(f"the name of a {self.kind} must be a printable text, got {name!r}")
        if name in self:
            raise ValueError(
                f"a {self.kind} named {name!r} exists already: register yours by another name"
            )
        self._known[name] = thing
        return thing

    def forget(self, name: str) -> None:
        """Take away what was registered."""
        self._known.pop(name, None)

    @functools.cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points

        group = f"torchlace.{self.kind.replace(' ', '_')}s"
        return {each.name: each for each in entry_points(group=group)}

    def _load(self, offered: EntryPoint) -> T:
        try:
            found: T = offered.load()
        except Exception as error:
            package = offered.dist.name if offered.dist else offered.value
            raise ImportError(
                f"the {self.kind} {offered.name!r} of the package {package} can't be loaded "
                f"({type(error).__name__}: {error}): mend or uninstall {package}"
            ) from error
        return found


def required(module: str, advice: str) -> Any:
    """A module that only some need; an ImportError that begins with the advice where it lacks."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{advice} ({error})") from error


def lazy_names(
    package: str, places: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> Callable[[str], Any]:
    """A ``__getattr__`` for a package, so that importing it loads none of its modules.

    Args:
        package: the ``__name__`` of the package.
        places: names by the module of the package that defines them.
        modules: of the package, which are names of it themselves.
    """
    found = {name: module for module, names in places.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{found[name]}"), name)

    return get
