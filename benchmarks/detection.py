"""Detectors on a 512 × 512 × 200 cube, background and scores, beside the package spectral.

    python benchmarks/detection.py                      # about three minutes on two CPU cores
    python benchmarks/detection.py --device cuda        # spectral only if it is installed

Every time is of the whole call, from the cube to the scores: mean and covariance of all pixels,
then the statistic of each. Best of --repeats runs, taken in turns. spectral computes in double
precision whatever it is given. `on device`: the cube is a tensor there already. The last rows slide
a window of (5, 21) over a small cube. Writes results/detection-DEVICE.csv.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlace.cli.common import print_table
from torchlace.detection import ACEDetector, RXDetector, SMFDetector

RESULTS = Path(__file__).parent / "results"
WINDOW = (5, 21)


def make_cube(height: int, width: int, bands: int) -> tuple[Any, Any]:
    """Correlated pixels, and a spectrum to look for."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(bands, bands)) / bands**0.5
    cube = rng.normal(size=(height * width, bands)) @ mixing + 3
    return cube.reshape(height, width, bands), 3 + rng.normal(size=bands)


def calls(cube: Any, target: Any, device: str, window: Any) -> dict[str, Callable[[], Any]]:
    """Ours on the device, and spectral's where it is installed."""
    options: dict[str, Any] = {"device": device, "window": window}

    def ours(detector: Any, pixels: Any) -> Callable[[], Any]:
        return lambda: detector.fit(pixels).score_samples(pixels)

    detectors = {
        "ace": ACEDetector(target, **options),
        "smf": SMFDetector(target, threshold="cfar", **options),
        "rx": RXDetector(**options),
    }
    kinds = {"float64": cube} if window else {"float64": cube, "float32": cube.astype(np.float32)}
    found = {}
    for name, detector in detectors.items():
        for kind, pixels in kinds.items():
            found[f"{name}/torchlace {kind}"] = ours(detector, pixels)
            if device == "cuda":
                placed = torch.from_numpy(pixels).to(device)
                found[f"{name}/torchlace {kind} on device"] = ours(detector, placed)
    try:
        import spectral
    except ImportError:
        print("spectral is not installed: its rows are left out")
        return found
    spectral.settings.show_progress = False
    found["ace/spectral"] = lambda: spectral.ace(cube, target, window=window)
    found["rx/spectral"] = lambda: spectral.rx(cube, window=window)
    if not window:
        # In a window it fails with NumPy 2.4.
        found["smf/spectral"] = lambda: spectral.matched_filter(cube, target)
    return found


def timed(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Seconds of each, the best of several turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", default="512x512x200")
    parser.add_argument("--window-size", default="40x40x50", help="cube of the sliding window")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size, window in ((args.size, None), (args.window_size, WINDOW)):
        cube, target = make_cube(*map(int, size.split("x")))
        times = timed(calls(cube, target, args.device, window), args.repeats)
        for name in sorted(times):
            detector, way = name.split("/")
            base = times.get(f"{detector}/spectral")
            rows.append(
                {
                    "cube": size,
                    "window": "" if window is None else "5, 21",
                    "detector": detector,
                    "by": way,
                    "seconds": f"{times[name]:.3f}",
                    "faster": "" if base is None else f"{base / times[name]:.2f}",
                }
            )
    print_table(f"detectors on {args.device}", list(rows[0]), [list(row.values()) for row in rows])
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"detection-{args.device}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
