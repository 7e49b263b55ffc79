"""What one of several processes does, and what a single process does with the joined batch."""

import torch
import torch.distributed as dist
from heads.cases import CASES, PATHS, Loss, batch, has_state, make
from torch.nn.parallel import DistributedDataParallel

from torchlace.backgrounds import Running

STEPS, ROWS = 5, 8
SHARED = [case for case in CASES if case in PATHS or has_state(make(case))]


def share(rank, step):
    return batch(ROWS, seed=10 * step + rank)


def joined(world, step):
    """The batches of all ranks: first all first halves, then all second halves."""
    parts = [share(rank, step) for rank in range(world)]
    half = ROWS // 2
    return tuple(
        torch.cat([part[k][:half] for part in parts] + [part[k][half:] for part in parts])
        for k in (0, 1)
    )


def train(module, head, batches):
    """Losses, the gradients of every step, the state at the end and the scores it gives."""
    optimizer = torch.optim.SGD(head.parameters(), lr=0.02)
    losses, slopes = [], []
    for x, y in batches:
        optimizer.zero_grad()
        loss = module(x, y)
        loss.backward()
        losses.append(loss.detach())
        slopes.append({name: p.grad.clone() for name, p in head.named_parameters()})
        optimizer.step()
    state = {name: value.clone() for name, value in head.state_dict().items()}
    for part in head.modules():
        if isinstance(part, Running):
            part.refresh()
    scores = head.eval()(batch(seed=99)[0]).detach()
    return {"losses": losses, "gradients": slopes, "state": state, "scores": scores}


def single(case, world):
    head = make(case).train()
    return train(Loss(head), head, [joined(world, step) for step in range(STEPS)])


def work(rank, world, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world
    )
    results = {}
    for case in SHARED:
        head = make(case).train()
        module = DistributedDataParallel(Loss(head), broadcast_buffers=False)
        results[case.name] = train(module, head, [share(rank, step) for step in range(STEPS)])
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()
