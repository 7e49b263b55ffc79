"""What the digests in a run's files cost: seconds of a run's wall time, and of a large checkpoint.

    python benchmarks/seals.py

The run is the fastest there is (digits, the small network, on the CPU). The checkpoint is that of
ResNet18 with Adam; where training goes on while it is written (on one GPU), digesting shows only as
far as writing takes longer than an epoch.
"""

import contextlib
import tempfile
import time
from pathlib import Path

import torch
from torchvision.models import resnet18

from torchlace.runs import Run, TrainConfig, seals
from torchlace.training import checkpoint, train

EPOCHS, REPEATS = 40, 5


@contextlib.contextmanager
def timed(module, name):
    """The seconds that each call of a function takes."""
    whole, took = getattr(module, name), []

    def clocked(*arguments):
        start = time.perf_counter()
        try:
            return whole(*arguments)
        finally:
            took.append(time.perf_counter() - start)

    setattr(module, name, clocked)
    try:
        yield took
    finally:
        setattr(module, name, whole)


def run_share():
    with tempfile.TemporaryDirectory() as folder, timed(seals, "_digest") as took:
        start = time.perf_counter()
        train(TrainConfig(epochs=EPOCHS, patience=EPOCHS, device="cpu"), Path(folder, "run"))
        return sum(took), time.perf_counter() - start


def checkpoint_share():
    model = resnet18(num_classes=100)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 3, 64, 64)).sum().backward()
    optimizer.step()
    state = checkpoint.checkpoint_state({"model": model, "optimizer": optimizer}, {})
    with tempfile.TemporaryDirectory() as folder, timed(seals, "_digest") as took:
        run, start = Run(folder), time.perf_counter()
        for _ in range(REPEATS):
            checkpoint.write_checkpoint(run, state)
        whole = (time.perf_counter() - start) / REPEATS
        return sum(took) / REPEATS, whole, run.checkpoint_path.stat().st_size


if __name__ == "__main__":
    digests, wall = run_share()
    print(f"digits, {EPOCHS} epochs: {digests:.4f} s of {wall:.2f} s, {digests / wall:.2%}")
    digests, wall, size = checkpoint_share()
    print(
        f"a checkpoint of ResNet18, {size / 2**20:.0f} MiB: {digests:.3f} s of the {wall:.3f} s "
        f"that writing takes, {digests / wall:.1%}; {size / digests / 1e9:.1f} GB/s"
    )
