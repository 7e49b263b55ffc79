"""The silhouette beside scikit-learn's, in one run.

    python benchmarks/silhouette.py                    # CPU
    python benchmarks/silhouette.py --device cuda      # GPU against scikit-learn on the CPU
    python benchmarks/silhouette.py --sizes 10000x512x100,100000x512x100 --only torchlace

Each is called once to warm up and then `--repeat` times; the median counts. `ratio` is the time of
scikit-learn over that of torchlace, `difference` that of the two scores. `memory_mib` is what
torchlace needed at most beyond the points: of the GPU's memory there, of the process's on the CPU
(where it can't be told apart once something larger ran before). Results go to
benchmarks/results/silhouette-DEVICE.csv.
"""

from __future__ import annotations

import argparse
import csv
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn import metrics
from torch import Tensor

from torchlace.evaluation import silhouette_score

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", default="2000x512x10,10000x512x100")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["torchlace"], help="leave scikit-learn out")
    arguments = parser.parse_args()
    rows = []
    for size in arguments.sizes.split(","):
        points, labels = cloud(*map(int, size.split("x")))
        for metric in ("euclidean", "cosine"):
            rows.append(
                {
                    "device": name_of(arguments.device),
                    "cpu_threads": torch.get_num_threads(),
                    "size": size,
                    "metric": metric,
                    **compare(points, labels, metric, arguments),
                }
            )
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"silhouette-{arguments.device}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def compare(
    points: Tensor, labels: Tensor, metric: str, arguments: argparse.Namespace
) -> dict[str, float | str]:
    device = torch.device(arguments.device)
    there, classes = points.to(device), labels.to(device)
    before = peak(device)
    seconds, score = timed(
        lambda: silhouette_score(there, classes, metric=metric), arguments.repeat
    )
    row: dict[str, float | str] = {
        "torchlace_s": round(seconds, 4),
        "memory_mib": round((peak(device) - before) / 2**20),
    }
    if arguments.only:
        return row
    arrays = points.numpy(), labels.numpy()
    seconds, expected = timed(
        lambda: float(metrics.silhouette_score(*arrays, metric=metric)), arguments.repeat
    )
    return {
        **row,
        "sklearn_s": round(seconds, 4),
        "ratio": round(seconds / float(row["torchlace_s"]), 2),
        "difference": f"{abs(score - expected):.1e}",
    }


def timed(call: Callable[[], float], repeat: int) -> tuple[float, float]:
    score, times = call(), []
    for _ in range(repeat):
        start = time.perf_counter()
        score = call()  # a float, so the device is done
        times.append(time.perf_counter() - start)
    return statistics.median(times), score


def cloud(samples: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Classes that overlap as features do, behind a rectifier."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (samples,), generator=generator)
    means = 0.35 * torch.randn(classes, width, generator=generator)
    noise = torch.randn(samples, width, generator=generator)
    return (means[labels] + noise).relu(), labels


def peak(device: torch.device) -> float:
    """Most bytes in use so far."""
    if device.type == "cuda":
        peak_bytes = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak_bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def name_of(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


if __name__ == "__main__":
    main()
