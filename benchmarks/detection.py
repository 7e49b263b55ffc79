"""Detectors on a 512 × 512 × 200 cube, background and scores, beside the package spectral.

    python benchmarks/detection.py                      # about three minutes on two CPU cores
    python benchmarks/detection.py --device cuda        # spectral only if it is installed
    python benchmarks/detection.py --stream 16          # a file of 16 GB instead, read in blocks

Every time is of the whole call, from the cube to the scores: mean and covariance of all pixels,
then the statistic of each. Best of --repeats runs, taken in turns. spectral computes in double
precision whatever it is given. `on device`: the cube is a tensor there already. The last rows slide
a window of (5, 21) over a small cube. Writes results/detection-DEVICE.csv.

With --stream the cube lies in files of uint16 in --folder, pixel by pixel and band by band, which
`torchlace detect` reads twice, beside one `cat` of the same file to nowhere; what the system keeps
of the files is dropped before. Writes results/streaming-DEVICE.csv.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlace.cli.common import print_table
from torchlace.detection import ACEDetector, RXDetector, SMFDetector
from torchlace.detection.scene import detect_in_file

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


def write_cube(folder: Path, gigabytes: float, interleave: str) -> tuple[Path, Path]:
    """A file of about so many gigabytes, 1000 pixels wide, of 200 bands, and its ENVI header."""
    rows, _ = make_cube(40, 1000, 200)
    stored = (1000 + 200 * rows).clip(0, 65535).astype("<u2")
    times = max(round(gigabytes * 1e9 / stored.nbytes), 1)
    data, header = folder / f"{interleave}.img", folder / f"{interleave}.hdr"
    with data.open("wb") as file:
        if interleave == "bip":
            for _ in range(times):
                file.write(stored)
        else:
            for band in range(200):
                file.write(np.tile(stored[..., band].ravel(), times))
    header.write_text(
        f"ENVI\nsamples = 1000\nlines = {40 * times}\nbands = 200\ndata type = 12\n"
        f"interleave = {interleave}\nbyte order = 0\nheader offset = 0\n"
    )
    return data, header


def forget(path: Path) -> None:
    """Let the system drop what it keeps of a file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident(kind: str) -> float:
    """Megabytes of memory of this process, VmRSS now or VmHWM at most since the last reset."""
    found = re.search(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def streamed(gigabytes: float, device: str, parent: str | None) -> list[dict[str, Any]]:
    """Seconds and memory of a search in a file, and of reading it once."""
    rows = []
    for interleave in ("bip", "bsq"):
        with tempfile.TemporaryDirectory(dir=parent) as name:
            folder = Path(name)
            data, header = write_cube(folder, gigabytes, interleave)
            size = data.stat().st_size / 1e9
            np.save(folder / "t.npy", make_cube(1, 1, 200)[1] * 200 + 1000)

            def search(detector: str, at: Path = folder, cube: Path = header) -> None:
                target = None if detector == "rx" else at / "t.npy"
                detect_in_file(cube, target, at / "s.npy", detector=detector, device=device)

            calls: dict[str, Callable[[], Any]] = {
                "cat": lambda path=data: subprocess.run(  # type: ignore[misc]
                    ["cat", path], stdout=subprocess.DEVNULL, check=True
                ),
                "smf": lambda: search("smf"),
                "ace": lambda: search("ace"),
            }
            for way, call in calls.items():
                forget(data)
                Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
                rest = resident("VmRSS")
                start = time.perf_counter()
                call()
                seconds = time.perf_counter() - start
                passes = 1 if way == "cat" else 2
                rows.append(
                    {
                        "interleave": interleave,
                        "GB": f"{size:.2f}",
                        "by": way,
                        "seconds": f"{seconds:.2f}",
                        "GB/s read": f"{passes * size / seconds:.2f}",
                        "MB at rest": f"{rest:.0f}",
                        "MB at most": f"{resident('VmHWM'):.0f}",
                    }
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", default="512x512x200")
    parser.add_argument("--window-size", default="40x40x50", help="cube of the sliding window")
    parser.add_argument("--stream", type=float, metavar="GB", help="search in a file of this size")
    parser.add_argument("--folder", help="where that file goes for a while")
    args = parser.parse_args()
    if args.stream:
        rows = streamed(args.stream, args.device, args.folder)
        show(f"{args.stream:g} GB in files, on {args.device}", f"streaming-{args.device}.csv", rows)
        return
    rows = []
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
    show(f"detectors on {args.device}", f"detection-{args.device}.csv", rows)


def show(title: str, name: str, rows: list[dict[str, Any]]) -> None:
    """Print a table, and write it among the results."""
    print_table(title, list(rows[0]), [list(row.values()) for row in rows])
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / name).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
