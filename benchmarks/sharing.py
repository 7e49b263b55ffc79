"""How processes share a GPU: images a second of the replayed step of resnet18, alone and together.

    python benchmarks/sharing.py --processes 1,6,10            # under MPS, if its daemon runs
    python benchmarks/sharing.py --processes 1,6 --compile     # with the backbone compiled

32-pixel images, batches of 256, bf16, lace; the step is captured once in every process, all start
together and replay for some seconds. Compiled, the first process alone fills the cache.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from typing import Any

import torch

from torchlace.backgrounds import refreshing
from torchlace.models import Classifier

BATCH = 256


def captured(compiled: bool) -> torch.cuda.CUDAGraph:
    """Forward, loss, backward and update on one fixed batch."""
    torch.backends.cudnn.benchmark = True
    model = Classifier("resnet18", "lace", 10, stem="small").cuda()
    model = model.to(memory_format=torch.channels_last)
    if compiled:
        model.backbone.compile()
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)
    images = torch.randn(BATCH, 3, 32, 32, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (BATCH,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(images, labels)
        loss.backward()
        optimizer.step()

    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with refreshing(model, False), torch.cuda.graph(graph):
        step()
    return graph


def work(compiled: bool, seconds: float, ready: Any, rates: Any) -> None:
    """One process: capture, wait for the others, replay."""
    graph = captured(compiled)
    ready.wait()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
        steps += 20
    rates.put(steps * BATCH / (time.perf_counter() - start))


def together(count: int, compiled: bool, seconds: float) -> float:
    """Images a second of all processes."""
    context = multiprocessing.get_context("spawn")
    ready, rates = context.Barrier(count), context.Queue()
    arguments = (compiled, seconds, ready, rates)
    processes = [context.Process(target=work, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    total = sum(rates.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    return float(total)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--processes", default="1,6")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    for count in map(int, args.processes.split(",")):
        rate = together(count, args.compile, args.seconds)
        print(f"{count} processes: {rate:,.0f} images a second", flush=True)


if __name__ == "__main__":
    main()
