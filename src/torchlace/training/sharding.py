"""A model spread over devices, and its state as one process would have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Spread the parameters of a classifier over the processes of a mesh.

    The parts of the backbone gather their parameters when they are called. The head's belong to
    the model as a whole, because a loss is not a call of the head.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = mesh["data_parallel"]
    for part in model.backbone.network.children():  # type: ignore[union-attr]
        if any(True for _ in part.parameters()) and type(part).forward is not nn.Module.forward:
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "loss")
    return model


def whole(value: Any, *, keep: bool = True, copy: bool = False) -> Any:
    """A state on the CPU, with every spread tensor put together; every process must ask for it.

    One tensor at a time, so that no device ever holds a second model. Processes that don't
    ``keep`` the state help to put it together and get None for every tensor. ``copy`` makes sure
    that nothing in it changes when training goes on.

    Example:
        >>> whole({"weight": torch.ones(2), "steps": [3]})
        {'weight': tensor([1., 1.]), 'steps': [3]}
    """
    if isinstance(value, dict):
        return {name: whole(each, keep=keep, copy=copy) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(whole(each, keep=keep, copy=copy) for each in value)
    if not isinstance(value, Tensor):
        return value
    if hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.detach().to("cpu", copy=copy) if keep else None


def like(value: Tensor, own: Any) -> Tensor:
    """This process's part of a whole tensor, where ``own`` is spread and of its shape."""
    if not hasattr(own, "device_mesh") or value.shape != own.shape:
        return value
    from torch.distributed.tensor import DTensor

    mesh, (placement,) = own.device_mesh, own.placements
    parts, rank = value.chunk(mesh.size(), placement.dim), mesh.get_local_rank()
    mine = parts[rank] if rank < len(parts) else value.narrow(placement.dim, 0, 0)
    # A copy: a part that is a view would keep the whole.
    mine = mine.to(own.device, copy=True)
    return DTensor.from_local(
        mine, mesh, (placement,), run_check=False, shape=own.shape, stride=own.stride()
    )


def spread_model(state: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The state of a whole model, for ``model`` to load."""
    own = model.state_dict()
    return {
        name: like(value, own[name]) if torch.is_tensor(value) and name in own else value
        for name, value in state.items()
    }


def spread_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state of an optimiser of a whole model, for ``optimizer`` to load."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    moved = {
        number: {
            name: like(value, parameters[number]) if torch.is_tensor(value) else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": moved}
