"""What training needs of torch under names that torch keeps private, and may move."""

from __future__ import annotations

from typing import Any

from torch import _foreach_lerp_ as lerp_all_
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["BatchNorm", "TorchDispatchMode", "default_store", "is_compile_error", "lerp_all_"]


def default_store() -> Any:
    """The store that all processes of a group share."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def is_compile_error(error: BaseException) -> bool:
    """Whether ``torch.compile`` says that it could not compile something."""
    from torch._dynamo.exc import TorchDynamoException

    return isinstance(error, TorchDynamoException)
