"""What each of two processes does in test_ranks: every estimated background, on its own rows."""

from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from backgrounds.cases import DECAY, ONE_EACH, PLAIN_RUNNING, RUNNING, Case, batches
from torch import Tensor

STEPS = 25
BAD_STEP = 12
UNLABELLED = 17
RESTORED = 14


def stream(dtype: torch.dtype = torch.float64) -> list[tuple[Tensor, Tensor]]:
    found = batches(STEPS, dtype=dtype)
    found[BAD_STEP][0][3, 2] = torch.nan
    for step, (_, targets) in enumerate(found):
        targets[step % 4 :: 5] = -1
    found[UNLABELLED][1].fill_(-1)
    return found


def uneven(step: int, rows: int) -> int:
    """Where to cut a batch in two; now and then the second process gets nothing."""
    return rows if step % 5 == 4 else 3 + step % 7


def halves(step: int, rows: int) -> int:
    return rows // 2


def share(cut: int, rank: int, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    part = slice(cut) if rank == 0 else slice(cut, None)
    return features[part], targets[part]


def compile_once(observe: Callable[..., None]) -> Callable[..., None]:
    torch.compiler.reset()
    return torch.compile(observe, fullgraph=True, backend="aot_eager")


def run(
    case: Case, rank: int | None = None, *, decay: float | str = DECAY, compiled: bool = False
) -> dict[str, Tensor]:
    options = {"decay": decay, "refresh_every": 4, "dtype": torch.float64}
    background = case.build(**options)
    observe, cut = background.observe, uneven
    if compiled:
        observe, cut = compile_once(observe), halves
    for step, (features, targets) in enumerate(stream()):
        if rank is not None:
            features, targets = share(cut(step, len(targets)), rank, features, targets)
        if rank is not None and step == RESTORED and (not compiled or case.label == "total"):
            background, before = case.build(**options), background
            background.load_state_dict(before.state_dict())
            observe = background.observe
            observe = compile_once(observe) if compiled else observe
        observe(features, targets)
    found = dict(background.named_buffers())
    return {**found, "read_mean": background.mean, "read_precision": background.precision}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        eager = {case.label: run(case, rank) for case in RUNNING}
        compiled = {case.label: run(case, rank, compiled=True) for case in ONE_EACH}
        # What is remembered follows from how many samples all processes have.
        automatic = {case.label: run(case, rank, decay="auto") for case in PLAIN_RUNNING}
        torch.save((eager, compiled, automatic), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
