"""What changes the weights: optimisers of torch, Muon, and the schedule of the learning rate."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlace._text import setting
from torchlace.runs import RunError, TrainConfig

# What FSDP puts into the names of parameters.
_SPREAD = "_fsdp_wrapped_module."
# A quintic whose iteration brings every singular value close to one (Jordan et al., 2024).
_QUINTIC, _ROUNDS = (3.4445, -4.7750, 2.0315), 5
# Adam's updates are about so long for each weight: one learning rate then serves both.
_LENGTH = 0.2


class Muon(torch.optim.AdamW):
    """Step along orthogonal matrices for kernels and matrices, and by AdamW for all else.

    The momentum of a group that says ``orthogonal`` is brought close to the nearest matrix whose
    singular values are one, a kernel as a matrix with a row for each output (Muon; Jordan et al.,
    2024), and scaled to the length of Adam's updates. torch's own Muon takes no kernels, and no
    learning rate on the device, which a CUDA graph needs.

    Args:
        params: groups of parameters.
        lr: learning rate of both.
        weight_decay: of both, decoupled.
        momentum: of the orthogonal updates, Nesterov's.
        capturable: whether a CUDA graph can hold a step.

    Example:
        >>> weight = nn.Parameter(torch.eye(2))
        >>> weight.grad = torch.tensor([[3.0, 0.0], [0.0, 0.1]])
        >>> optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=0.1, weight_decay=0.0)
        >>> optimizer.step()
        >>> (weight.diagonal() < 0.99).all()  # both directions alike, however small the gradient
        tensor(True)
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        weight_decay: float,
        momentum: float = 0.95,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, capturable=capturable)
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients."""
        groups = self.param_groups
        try:
            self.param_groups = [each for each in groups if not each.get("orthogonal")]
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group.get("orthogonal"):
                self._step_orthogonally(group)
        return loss

    def _step_orthogonally(self, group: dict[str, Any]) -> None:
        weights = [each for each in group["params"] if each.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                # AdamW asks for the step of every parameter when a state is loaded.
                state = {"momentum": torch.zeros_like(weight), "step": weight.new_zeros(())}
                self.state[weight].update(state)
        means = [self.state[each]["momentum"] for each in weights]
        gradients = [each.grad for each in weights]
        torch._foreach_lerp_(means, gradients, 1 - self.momentum)
        ahead = torch._foreach_lerp(gradients, means, self.momentum)
        if group["weight_decay"]:
            torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
        turn_all([as_matrix(each) for each in ahead])
        sides = [(len(each), each.numel() // len(each)) for each in weights]
        torch._foreach_mul_(ahead, [-_LENGTH * max(each) ** 0.5 for each in sides])
        torch._foreach_mul_(ahead, group["lr"])
        torch._foreach_add_(weights, ahead)


def as_matrix(kernel: Tensor) -> Tensor:
    """A view with a row for each output; the order of the columns doesn't matter."""
    strides = kernel.stride()
    first, *others = sorted(range(kernel.dim()), key=lambda side: (side > 0, -strides[side]))
    return kernel.permute(first, *others).view(len(kernel), -1)


def turn_all(matrices: Sequence[Tensor]) -> None:
    """Bring matrices of any shapes close to orthogonal ones, in place.

    Those of similar sizes are filled up with zeros, which change nothing, and turned together: on a
    GPU a few large products take a fraction of the time of hundreds of small ones.
    """
    wide = [each if each.shape[0] <= each.shape[1] else each.mT for each in matrices]
    similar: dict[int, list[Tensor]] = defaultdict(list)
    for each in wide:
        similar[len(each).bit_length()].append(each)
    for group in similar.values():
        rows, columns = (max(each.shape[side] for each in group) for side in (0, 1))
        dtype = torch.bfloat16 if group[0].is_cuda else group[0].dtype
        stacked = group[0].new_zeros(len(group), rows, columns, dtype=dtype)
        for place, each in zip(stacked, group, strict=True):
            place[: each.shape[0], : each.shape[1]] = each
        for turned, each in zip(orthogonal(stacked), group, strict=True):
            each.copy_(turned[: each.shape[0], : each.shape[1]])


def orthogonal(matrices: Tensor) -> Tensor:
    """Roughly the nearest matrices whose singular values are one, (N, rows, columns).

    The singular values come out between .7 and 1.2, which is enough to learn.

    Example:
        >>> values = torch.linalg.svdvals(orthogonal(torch.diag(torch.tensor([5.0, 1.0]))[None]))
        >>> bool((0.6 < values).all() and (values < 1.3).all())
        True
    """
    x: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp_min(1e-7)
    first, third, fifth = _QUINTIC
    for _ in range(_ROUNDS):
        square = x @ x.mT
        square = torch.baddbmm(square, square, square, beta=third, alpha=fifth)
        x = torch.baddbmm(x, square, x, beta=first)
    return x


def make_optimizer(
    config: TrainConfig,
    model: nn.Module,
    decayed: Collection[str],
    device: torch.device,
    capturable: bool,
) -> torch.optim.Optimizer:
    """The optimiser of these settings; one that a CUDA graph can hold where ``capturable``.

    The weights of the parameters named in ``decayed`` decay. Muon turns those of the backbone.
    """
    kind: Any
    match config.optimizer:
        case "sgd":
            kind, options = torch.optim.SGD, {"momentum": 0.9, "nesterov": True}
        case "muon" if config.strategy == "fsdp":
            raise RunError(
                "muon needs whole matrices, and fsdp spreads them over devices: use "
                f"{setting('strategy', 'ddp')} or {setting('optimizer', 'adamw')}"
            )
        case name:
            kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}[name]
            options = {}
    takes = inspect.signature(kind).parameters
    if capturable and "capturable" in takes:
        options["capturable"] = True
    # Lightning clips no gradients that a fused optimiser unscales.
    unscaled = config.precision == "16-mixed" and config.clip
    if device.type == "cuda" and "fused" in takes and not unscaled:
        options["fused"] = True
    on_device = capturable and config.schedule != "constant"
    lr = torch.tensor(config.lr, device=device) if on_device else config.lr
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = defaultdict(list)
    for full_name, each in model.named_parameters():
        name = full_name.replace(_SPREAD, "")
        turned = kind is Muon and name.startswith("backbone.") and name in decayed
        groups[config.weight_decay > 0 and name in decayed, turned].append(each)
    parameters = [
        {
            "params": each,
            "weight_decay": config.weight_decay if decays else 0.0,
            **({"orthogonal": turned} if kind is Muon else {}),
        }
        for (decays, turned), each in sorted(groups.items(), reverse=True)
    ]
    optimizer: torch.optim.Optimizer = kind(parameters, lr=lr, weight_decay=0.0, **options)
    return optimizer


def make_scheduler(config: TrainConfig, optimizer: Any, steps: int) -> Any:
    """The schedule of the learning rate, a step for each training step; None for a constant one."""
    total = config.epochs * steps
    if config.schedule == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    if config.schedule == "one-cycle":
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, config.lr, total_steps=total + 1, cycle_momentum=False
        )
    return None
