"""The device of a name; and all that torch keeps private, and may move, that the library uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import _foreach_lerp_ as lerp_all_
from torch._C import _DisableFuncTorch as untransformed
from torch._C import _is_tracing as is_tracing
from torch._C._functorch import (
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    peek_interpreter_stack,
)
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

from torchlace._text import setting
from torchlace._values import nearest

__all__ = [
    "BatchNorm",
    "TorchDispatchMode",
    "constant_when_compiled",
    "default_store",
    "find_device",
    "is_compile_error",
    "is_tracing",
    "lerp_all_",
    "mapped",
    "named_device",
    "no_device",
    "transformed",
    "transforming",
    "untransformed",
]

Function = TypeVar("Function", bound=Callable[..., Any])


def named_device(name: str | torch.device) -> torch.device:
    """The device of this name, or an error that says what to use instead."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    try:
        device = torch.device(name)
        if device.type in here and not here[device.type]():
            raise no_device(device.type)
        if device.index is not None or device.type not in ("cpu", *here):
            torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        use = setting("device", "cpu")
        hint = "; did you mean 'cuda'?" if nearest(str(name), ("cuda",)) else ""
        raise ValueError(f'unknown device {name!r}: use {use}, "cuda" or "auto"{hint}') from None
    return device


def no_device(kind: str) -> ValueError:
    """The error of a machine that has no device of this kind."""
    use = setting("device", "cpu")
    return ValueError(f"there is no {kind.upper()} device here: use {use}")


def find_device(name: str | torch.device, rows: Any = None) -> torch.device:
    """The device of this name for work in fp64: ``auto`` is where a tensor lies, else CUDA."""
    if name == "auto" and isinstance(rows, Tensor):
        return rows.device
    if str(name) == "mps":
        cpu = setting("device", "cpu")
        raise ValueError(f"statistics are kept in fp64, which mps lacks: use {cpu}")
    return named_device(name)


def transforming() -> bool:
    """Whether a transform of torch.func (grad, vmap, ...) is at work.

    Example:
        >>> transforming(), torch.func.vmap(lambda x: x + transforming())(torch.zeros(1))
        (False, tensor([1.]))
    """
    return not torch.compiler.is_compiling() and peek_interpreter_stack() is not None


def transformed(tensor: Tensor) -> bool:
    """Whether a tensor is one that a transform of torch.func passes through a function."""
    return bool(is_functorch_wrapped_tensor(tensor))


def mapped(tensor: Tensor) -> bool:
    """Whether torch.func.vmap runs over a tensor, inside other transforms too."""
    while not torch.compiler.is_compiling() and is_functorch_wrapped_tensor(tensor):
        if is_batchedtensor(tensor):
            return True
        tensor = get_unwrapped(tensor)
    return False


def constant_when_compiled(function: Function) -> Function:
    """Mark a function whose value the compiler may take as it is.

    As torch.compiler.assume_constant_result does, which imports the compiler: two seconds of every
    start, compiled or not.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def default_store() -> Any:
    """The store that all processes of a group share."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def is_compile_error(error: BaseException) -> bool:
    """Whether ``torch.compile`` says that it could not compile something."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)
