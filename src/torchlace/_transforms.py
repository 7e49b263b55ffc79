"""What code has to know of torch.func's transforms."""

from __future__ import annotations

import torch


def transforming() -> bool:
    """Whether a transform of torch.func (grad, vmap, ...) is at work.

    Example:
        >>> transforming(), torch.func.vmap(lambda x: x + transforming())(torch.zeros(1))
        (False, tensor([1.]))
    """
    if torch.compiler.is_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None
