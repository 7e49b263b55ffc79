"""Heads and backgrounds compute in fp32 or better, inside autocast too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._torch import is_tracing


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """A block without autocast on the device of ``tensor``."""
    if not _in_autocast(tensor):
        return nullcontext()
    return torch.autocast(tensor.device.type, enabled=False)


def widened(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """``tensor`` in ``dtype``, which is wider, with a gradient that its own type can hold.

    What is too large for fp16 is cut to its largest number, a row at a time, so that each keeps its
    direction. Inside autocast it becomes infinite, as everywhere in torch: a gradient scaler looks
    for that and lowers its scale.

    Example:
        >>> x = torch.full((1, 2), 0.5, dtype=torch.float16, requires_grad=True)
        >>> (widened(x, torch.float32) * torch.tensor([1e6, 5e5])).sum().backward()
        >>> x.grad
        tensor([[65504., 32752.]], dtype=torch.float16)
    """
    narrow = tensor.dtype == torch.float16 and dtype != torch.float16
    if not narrow or is_tracing() or _in_autocast(tensor):
        return tensor.to(dtype)
    widen = _Widened if torch.compiler.is_compiling() else _WidenedForward
    wide: Tensor = widen.apply(tensor, dtype)
    return wide


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """The widest type of ``tensors``, at least fp32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """A block with ``module`` in evaluation mode; every part has its own mode again afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


class FullPrecisionBuffers(nn.Module):
    """A module whose own buffers stay in fp32 when it is cast to half precision.

    A running average in half precision stops moving; parameters are cast as usual.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, new in self._buffers.items():
            old = before[name]
            if new is not None and old is not None and new.dtype in (torch.half, torch.bfloat16):
                self._buffers[name] = old.to(device=new.device, dtype=torch.float32)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any
    ) -> None:
        # States of earlier versions hold scalars where there is one entry now: what moves may not
        # be a scalar, which can't be spread over devices and whose moves torch 2.11 loses when it
        # compiles in fp64.
        for name, own in {**self._parameters, **self._buffers}.items():
            saved = state_dict.get(prefix + name)
            if isinstance(saved, Tensor) and own is not None and (saved.dim(), own.dim()) == (0, 1):
                state_dict[prefix + name] = saved[None]
        super()._load_from_state_dict(state_dict, prefix, *args, **options)


class _Widened(torch.autograd.Function):
    """See :func:`widened`; the compiler traces no function with a forward derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.narrow, ctx.wide = inputs[0].dtype, inputs[1]

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        largest = torch.finfo(ctx.narrow).max
        sizes = slope.detach().abs().amax(-1, keepdim=True)
        return (slope * (largest / sizes).clamp_max(1)).to(ctx.narrow), None


class _WidenedForward(_Widened):
    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return tangent.to(ctx.wide)


def _in_autocast(tensor: Tensor) -> bool:
    kind = tensor.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)
