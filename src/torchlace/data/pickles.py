"""CIFAR's pickled batches, read without executing anything they contain.

A pickle is a program: it may import and call whatever it names. This reader resolves only the
names that a pickled numpy array needs, and resolves them to stand-ins of its own that do nothing
but remember their arguments; any other name is refused.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from torchlace.data.errors import DataError

_MOST_TUPLES = 1_000
_KINDS = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"}


def read_pickle(content: bytes, name: str) -> dict[str, Any]:
    """A pickled dictionary of lists, texts, numbers and integer arrays.

    Args:
        content: the pickle.
        name: what to call it in errors.

    Raises:
        DataError: if it holds anything else, or is broken.

    Example:
        >>> read_pickle(pickle.dumps({"labels": [3, 1]}), "data_batch_1")
        {'labels': [3, 1]}
        >>> read_pickle(pickle.dumps({"labels": eval}), "a batch")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        torchlace.data.errors.DataError: a batch: refused, the pickle asks for builtins.eval, ...
    """
    try:
        _check_program(content)
        value = _Reader(content, name).load()
    except DataError:
        raise
    except Exception as error:  # a broken pickle raises anything, from EOFError to KeyError
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"{name}: not a readable pickle ({reason})") from None
    if not isinstance(value, dict):
        raise DataError(f"{name}: holds a {type(value).__name__}, not CIFAR's dictionary")
    return {decoded(key, name): _array(entry, name) for key, entry in value.items()}


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, name: str) -> None:
        super().__init__(io.BytesIO(content), encoding="latin1")
        self._name = name
        self._allowed = _stand_ins()

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module.replace("numpy._core", "numpy.core"), name]
        except KeyError:
            raise DataError(
                f"{self._name}: refused, the pickle asks for {module}.{name}, which CIFAR's "
                "batches don't need; nothing of it was executed. Take the file from its official "
                "source"
            ) from None


class _Recorded:
    """What the pickle said about an array: the arguments and the state, nothing made of them."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


def _stand_ins() -> dict[tuple[str, str], Callable[..., object]]:
    # New ones for every file: a pickle can set attributes of what it is given.
    class Array(_Recorded):
        pass

    class Kind(_Recorded):
        pass

    def reconstruct(*arguments: object) -> object:
        return Array()

    def marker(*arguments: object) -> object:
        return None

    def encode(text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise ValueError(f"bytes in the encoding {encoding!r}")
        return text.encode("latin1")

    return {
        ("numpy.core.multiarray", "_reconstruct"): reconstruct,
        ("numpy", "ndarray"): marker,
        ("numpy", "dtype"): Kind,
        ("_codecs", "encode"): encode,
    }


def _array(entry: object, name: str) -> object:
    """An array from what was recorded of it; anything else as it is."""
    if not isinstance(entry, _Recorded):
        return entry
    try:
        state: Any = entry.state
        _, shape, kind, fortran, raw = state
        code = str(kind.arguments[0])
        if code not in _KINDS:
            raise ValueError(f"an array of type {code}")
        content = raw.encode("latin1") if isinstance(raw, str) else bytes(raw)
        flat: npt.NDArray[Any] = np.frombuffer(content, np.dtype(code).newbyteorder("<"))
        return flat.reshape(shape, order="F" if fortran else "C")
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(f"{name}: holds an array that can't be read ({error})") from None


def decoded(text: object, name: str) -> str:
    """A text, which Python 2 pickled as bytes."""
    if not isinstance(text, str | bytes):
        raise DataError(f"{name}: holds a {type(text).__name__} where a text is expected")
    return text.decode("latin1") if isinstance(text, bytes) else text


def _check_program(content: bytes) -> None:
    """Raise where a pickle would take memory or the stack beyond what its length explains."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(content):
        # Python makes room for as many remembered objects as the largest of their numbers says.
        if "PUT" in opcode.name and int(str(argument)) > len(content):
            raise ValueError(f"it numbers an object {argument}")
        tuples += "TUPLE" in opcode.name
        if tuples > _MOST_TUPLES:
            raise ValueError(f"it holds more than {_MOST_TUPLES} tuples, perhaps in one another")
