"""The one reader of YAML, which refuses what would hang or bring down whoever reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Far more than settings need, and far less than takes long, fills the stack or overflows a float.
_DEEPEST = 50
_MOST_REPEATED = 10_000
_LARGEST = 8 << 20
_LONGEST_NUMBER = 250


def read_yaml_file(path: Path | str) -> Any:
    """What a YAML file in UTF-8 says, see :func:`read_yaml_text`."""
    with open(path, "rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"{path} is larger than {_LARGEST >> 20} MiB: no file of settings is")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        message = f"{path} is not UTF-8 text (see byte {error.start}): save it as UTF-8"
        raise ValueError(message) from None
    return read_yaml_text(text, str(path))


def read_yaml_text(text: str, source: str) -> Any:
    r"""What a text of YAML says: plain values only, in one document, each key once.

    Nesting deeper than that of settings, and aliases by which it would grow enormous, are refused.

    Args:
        text: the YAML.
        source: what to call it in errors.

    Example:
        >>> read_yaml_text("head: lace\nseed: 3", "a.yaml")
        {'head': 'lace', 'seed': 3}
        >>> read_yaml_text("seed: 1\nseed: 2", "a.yaml")
        Traceback (most recent call last):
        ValueError: a.yaml has the key 'seed' twice, in lines 1 and 2: rename or remove one
    """
    import yaml

    try:
        return _loader(text).get_single_data()
    except _RefusedError as error:
        raise ValueError(f"{source} {error}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{source} is not valid YAML: {_said(error)}") from None
    except (ValueError, OverflowError) as error:  # of the scanner: "\U00110000" is no character
        raise ValueError(f"{source} is not valid YAML: {error}") from None


class _RefusedError(Exception):
    """YAML that is valid and yet refused; the message goes on after the name of its source."""


def _loader(text: str) -> Any:
    """A ``yaml.SafeLoader`` with bounds, and with errors that say the line."""
    import yaml
    from yaml.constructor import ConstructorError

    class Loader(yaml.SafeLoader):
        depth = repeated = 0

        def __init__(self, text: str) -> None:
            super().__init__(text)
            # How many nodes each node is with its aliases written out, and how deep.
            self.sizes: dict[Any, tuple[int, int]] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias = self.check_event(yaml.AliasEvent)
            self.depth += 1
            if self.depth > _DEEPEST:
                raise _RefusedError(
                    f"is nested more than {_DEEPEST} deep in line {_line(parent)}: no settings "
                    "are; look for brackets that are not closed"
                )
            node = super().compose_node(parent, index)
            self.depth -= 1
            if alias:
                self.repeat(node)
            else:
                self.measure(node)
            return node

        def measure(self, node: Any) -> None:
            children = [] if node.id == "scalar" else node.value
            if node.id == "mapping":
                self.check_keys(node)
                children = [part for pair in children for part in pair]
            sizes = [self.sizes[child] for child in children]
            depth = 1 + max((depth for _, depth in sizes), default=0)
            if depth > _DEEPEST:
                raise _RefusedError(
                    f"is nested more than {_DEEPEST} deep by the aliases in what begins in line "
                    f"{_line(node)}: write out what is needed"
                )
            self.sizes[node] = 1 + sum(size for size, _ in sizes), depth

        def repeat(self, node: Any) -> None:
            if node not in self.sizes:
                raise _RefusedError(
                    f"has an alias in what begins in line {_line(node)} that names itself"
                )
            self.repeated += self.sizes[node][0]
            if self.repeated > _MOST_REPEATED:
                raise _RefusedError(
                    f"would grow by more than {_MOST_REPEATED:,} values where its aliases repeat "
                    f"what begins in line {_line(node)}: write out what is needed"
                )

        def check_keys(self, node: Any) -> None:
            lines: dict[str, int] = {}
            for key, _ in node.value:
                # Of two equal keys PyYAML would drop the first without a word.
                if key.id == "scalar" and not key.tag.endswith(":merge"):
                    name, line = str(self.construct_object(key)), _line(key)
                    if name in lines:
                        raise _RefusedError(
                            f"has the key {name!r} twice, in lines {lines[name]} and {line}: "
                            "rename or remove one"
                        )
                    lines[name] = line

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            kind = node.tag.rpartition(":")[2]
            if kind in ("int", "float") and len(node.value) > _LONGEST_NUMBER:
                raise _RefusedError(
                    f"holds a number of {len(node.value):,} digits in line {_line(node)}: put "
                    "quotes around it if it is a name"
                )
            try:
                return super().construct_object(node, deep)
            # Where a value is not what its tag or form promises: !!bool 3, 2001-99-99.
            except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
                problem = f"{str(node.value)[:40]!r} can't be read as {kind}"
                raise ConstructorError(None, None, problem, node.start_mark) from None

    return Loader(text)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _said(error: Any) -> str:
    """One line of an error of PyYAML, which shows the place in several."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return str(error).partition("\n")[0]
    said = ", ".join(filter(None, [error.context, error.problem]))
    return f"{said} (line {mark.line + 1}, column {mark.column + 1})"
