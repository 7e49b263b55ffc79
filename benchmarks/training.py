"""Training speed end to end, beside the bare step and a plain DataLoader loop, in one run.

    python benchmarks/training.py --data cifar10 --root DIR     # on a GPU
    python benchmarks/training.py --data cifar10 --root DIR --only-end-to-end   # prints, no file

resnet18 with the small stem at the data's own size, batch 256, bf16. `end to end` is what
`torchlace train` reaches (order, gathering, augmentation, step, metrics; without validation, with
it, and with all that happens between two epochs, checkpoints included); `bare step` the same
network, loss and optimiser replayed on one fixed batch; `plain loop` torchvision transforms in
DataLoader workers and an eager step. Start-up is from the start of the process to the end of its
first step. Writes results/training-cuda.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from torchlace.data import load_data
from torchlace.models import Classifier
from torchlace.training import Silent, TrainConfig, train

RESULTS = Path(__file__).parent / "results"
FIRST_STEP = """
import sys, time
from torchlace.training import Silent, TrainConfig, train
class First(Silent):
    def step(self, epoch, step, steps):
        import torch
        torch.cuda.synchronize()
        print(time.time())
        sys.exit()
train(TrainConfig.from_dict({config!r}), {run!r}, reporter=First())
"""


def end_to_end(config: TrainConfig) -> dict[str, float]:
    """Images a second of the later epochs, and peak device memory."""
    rows: list[dict[str, Any]] = []
    ends: list[float] = []

    class Rows(Silent):
        def epoch(self, row: dict[str, Any], epochs: int) -> None:
            rows.append(row)
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        result = train(config, folder, reporter=Rows())
    whole = [later["seconds"] - row["seconds"] for row, later in itertools.pairwise(rows)]
    images = _images(config)
    return {
        "train": statistics.median(row["images_per_second"] for row in rows[1:]),
        "with_validation": images / statistics.median(whole),
        "with_checkpoints": images * (len(ends) - 1) / (ends[-1] - ends[0]),
        "memory_mib": result["peak_memory_mib"],
    }


def _images(config: TrainConfig) -> int:
    data = load_data(config.data, Path(config.root) if config.root else None)
    held = round(len(data.train) * config.validation)
    return (len(data.train) - held) // config.batch_size * config.batch_size


def bare_step(config: TrainConfig, size: int, channels: int, classes: int) -> float:
    """Images a second of a captured step on one fixed batch."""
    model = Classifier("resnet18", config.head, classes, stem="small", channels=channels).cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=True)
    images = torch.randn(config.batch_size, channels, size, size, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(classes, (config.batch_size,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(images, labels)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return _rate(graph.replay, config.batch_size, 300)


def plain_loop(config: TrainConfig, steps: int) -> float:
    """Images a second of DataLoader workers with torchvision's transforms and an eager step."""
    from torchvision.transforms import v2

    data = load_data(config.data, Path(config.root) if config.root else None)
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(data.size[0], scale=(0.8, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * data.channels, [0.25] * data.channels),
        ]
    )

    class Transformed(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(data.train)

        def __getitem__(self, index: int) -> Any:
            return transform(data.train.images[index]), data.train.labels[index]

    loader = torch.utils.data.DataLoader(
        Transformed(),
        config.batch_size,
        shuffle=True,
        drop_last=True,
        pin_memory=True,
        num_workers=min(8, os.cpu_count() or 1),
    )
    model = Classifier(
        "resnet18", config.head, data.num_classes, stem="small", channels=data.channels
    )
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    start = 0.0
    for number, (images, labels) in enumerate(loader):
        if number == 10:
            torch.cuda.synchronize()
            start = time.perf_counter()
        if number == 10 + steps:
            break
        images = images.cuda(non_blocking=True).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(images, labels.cuda(non_blocking=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()
    return steps * config.batch_size / (time.perf_counter() - start)


def start_up(config: TrainConfig) -> float:
    """Seconds from the start of a process to the end of its first training step."""
    with tempfile.TemporaryDirectory() as folder:
        code = FIRST_STEP.format(config=config.as_dict(), run=folder)
        start = time.time()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return float(done.stdout.split()[-1]) - start


def _rate(run: Any, images: int, repeats: int) -> float:
    for _ in range(20):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return repeats * images / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--root")
    parser.add_argument("--heads", default="softmax,lace")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--only-end-to-end", action="store_true")
    args = parser.parse_args()
    rows = []
    for head in args.heads.split(","):
        settings = {"data": args.data, "root": args.root, "head": head, "epochs": args.epochs}
        config = TrainConfig.from_dict(settings)
        data = load_data(args.data, Path(args.root) if args.root else None)
        reached = end_to_end(config)
        if args.only_end_to_end:
            print(head, reached, flush=True)
            continue
        bare = bare_step(config, data.size[0], data.channels, data.num_classes)
        plain = plain_loop(config, 60)
        rows.append(
            {
                "head": head,
                "data": args.data,
                "end_to_end": round(reached["train"]),
                "with_validation": round(reached["with_validation"]),
                "with_checkpoints": round(reached["with_checkpoints"]),
                "bare_step": round(bare),
                "of_bare": round(reached["train"] / bare, 3),
                "plain_loop": round(plain),
                "x_plain": round(reached["train"] / plain, 2),
                "memory_mib": reached["memory_mib"],
                "start_up_s": round(start_up(config), 2),
            }
        )
        print(rows[-1], flush=True)
    if not rows:
        return
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "training-cuda.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
