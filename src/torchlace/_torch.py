"""What torch keeps private, and may move: all such names that the library uses stand here."""

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

__all__ = [
    "BatchNorm",
    "TorchDispatchMode",
    "constant_when_compiled",
    "default_store",
    "is_compile_error",
    "is_tracing",
    "lerp_all_",
    "mapped",
    "transformed",
    "transforming",
    "untransformed",
]

Function = TypeVar("Function", bound=Callable[..., Any])


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
