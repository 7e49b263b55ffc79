"""Time and memory of every head, beside nn.Linear + cross-entropy, in one run.

    python benchmarks/heads.py                     # CPU: the tables of docs/benchmarks.md
    python benchmarks/heads.py --device cuda       # GPU: also CUDA-graph replay, and many classes
    python benchmarks/heads.py --heads linear,lace --sizes 256x512x100 --modes eager

A step is forward, loss and backward to features and parameters. Each of 20 or more steps is timed
by itself, refreshes of the background included: the median is a step without refresh, the mean pays
for them. `x_linear` is the ratio of medians (`x_mean`: means) to nn.Linear + cross-entropy of the
same size, mode and precision, in the same run, on a CPU in turns with each head. Results go to
benchmarks/results/*.csv; those of a part, with --tag only.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import gc
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlace as tl
from torchlace.backgrounds import Running, advance, refreshing

Step = Callable[[Tensor, Tensor], Tensor]
Run = Callable[[], None]
Row = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
BLOCK = 5  # steps of a head, then as many of the linear layer beside it


class PaperSVD(nn.Module):
    """The paper's recipe: a singular value decomposition of MMᵀ in every step."""

    def __init__(self, width: int, classes: int, device: str) -> None:
        super().__init__()
        bound = width**-0.5
        self.matrix = nn.Parameter(torch.randn(width, width, device=device))
        self.mean = nn.Parameter(torch.empty(width, device=device).uniform_(-bound, bound))
        self.signatures = nn.Parameter(
            torch.empty(classes, width, device=device).uniform_(-bound, bound)
        )

    def forward(self, features: Tensor) -> Tensor:
        """Cosines in the whitened space."""
        vectors, values, _ = torch.linalg.svd(self.matrix @ self.matrix.T)
        whitening = values.rsqrt()[:, None] * vectors.T
        signatures = F.normalize(self.signatures @ whitening.T)
        return F.normalize((features - self.mean) @ whitening.T) @ signatures.T


def candidates(width: int, classes: int, device: str) -> Iterator[tuple[str, nn.Module, Step]]:
    """Name, module and loss of everything compared; the plain linear layer first."""

    def head(name: str, **options: Any) -> tuple[nn.Module, Step]:
        module = tl.heads.create(name, width, classes, device=device, **options)
        return module, module.loss

    linear = nn.Linear(width, classes, device=device)
    yield "linear", linear, lambda x, y: F.cross_entropy(linear(x), y)
    for name in tl.heads.names():
        yield name, *head(name)
    low = {"background_options": {"rank": 64}}
    yield "lace low-rank 64", *head("lace", background="low-rank", **low)
    yield "lace low-rank-learned 64", *head("lace", background="low-rank-learned", **low)
    schulz = {"background_options": {"method": "newton-schulz"}}
    yield "lace newton-schulz", *head("lace", **schulz)
    if classes <= 100:
        yield "lace one-vs-all", *head("lace", background="one-vs-all")
    paper = PaperSVD(width, classes, device)
    yield "paper's SVD", paper, lambda x, y: F.cross_entropy(paper(x), y)
    if device == "cpu":
        from pytorch_metric_learning.losses import ArcFaceLoss

        arcface = ArcFaceLoss(classes, width)
        yield "pml ArcFace", arcface, arcface


def measure(run: Run, peak: float | None, beside: Run | None, args: Any) -> Row:
    """Median and mean milliseconds, and peak MiB, of a step; and of the one beside it."""
    for each in (run, beside):
        for _ in range(2 if "SVD" in args.name else 11):
            if each is not None:
                each()
    times: list[float] = []
    others: list[float] = []
    for start in range(0, args.steps, BLOCK):
        count = min(BLOCK, args.steps - start)
        times += [clock(run, args.device) for _ in range(count)]
        if beside is not None:
            others += [clock(beside, args.device) for _ in range(count)]
    row = {
        "median_ms": statistics.median(times),
        "mean_ms": statistics.fmean(times),
        "peak_mib": (peak or peak_memory(run, args.device)) / 2**20,
    }
    if others:
        row["x_linear"] = row["median_ms"] / statistics.median(others)
        row["x_mean"] = row["mean_ms"] / statistics.fmean(others)
    return row


def prepared(
    module: nn.Module, step: Step, shape: tuple[int, int, int], mode: str, args: Any
) -> tuple[Run, float | None]:
    """A training step of one head in one mode, and what a graph holds, in bytes."""
    rows, width, classes = shape
    features = torch.randn(rows, width, device=args.device, requires_grad=True)
    targets = torch.randint(classes, (rows,), device=args.device)

    def run() -> None:
        features.grad = None
        module.zero_grad(set_to_none=True)
        step(features, targets).backward()

    if mode == "compiled":
        torch._dynamo.reset()
        compiled = torch.compile(step, fullgraph=True)

        def run() -> None:
            features.grad = None
            module.zero_grad(set_to_none=True)
            compiled(features, targets).backward()

    peak = None
    if mode == "graph":
        run = captured(module, run)
        # A replay allocates nothing: what it holds was allocated while it was captured.
        peak = torch.cuda.max_memory_allocated()
    return run, peak


def captured(module: nn.Module, run: Run) -> Run:
    """The step as CUDA graphs: one with the refresh of the background and one without."""
    running = [part for part in module.modules() if isinstance(part, Running)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.reset_peak_memory_stats()
    graphs, pool = {}, None
    for refresh in (True, False) if running else (False,):
        graph = torch.cuda.CUDAGraph()
        with refreshing(module, refresh), torch.cuda.graph(graph, pool=pool):
            run()
        graphs[refresh], pool = graph, graph.pool()

    def replay() -> None:
        due = bool(running) and running[0].steps % running[0].refresh_every == 0
        graphs[due].replay()
        advance(module, 1)

    return replay


def clock(run: Run, device: str) -> float:
    if device == "cpu":
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def peak_memory(run: Run, device: str) -> float:
    """Peak bytes of one step: all allocated on a GPU; on the CPU, beyond what lives before it."""
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated()
    # The profiler now and then loses the events of a short step, never adds any.
    return max(profiled_peak(run) for _ in range(3))


def profiled_peak(run: Run) -> int:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run()
    live = peak = 0
    changes = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(changes, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def heads_table(args: Any) -> Iterator[Row]:
    for shape in args.sizes:
        for mode in args.modes:
            base: Row = {}
            linear: Run | None = None
            for name, module, step in candidates(shape[1], shape[2], args.device):
                if args.heads and name not in args.heads:
                    continue
                if name in ("paper's SVD", "pml ArcFace") and mode != "eager":
                    continue
                args.name = name
                release(
                    args.device
                )  # graphs and pools of the head before would count as this one's
                row = {"batch": shape[0], "width": shape[1], "classes": shape[2], "mode": mode}
                run, peak = prepared(module, step, shape, mode, args)
                row |= {"precision": args.precision, "head": name}
                row |= measure(run, peak, linear, args)
                base = base or row
                row.setdefault("x_linear", row["median_ms"] / base["median_ms"])
                row.setdefault("x_mean", row["mean_ms"] / base["mean_ms"])
                yield row
                # A CPU's speed wanders: there the linear layer runs again beside every head. On a
                # GPU it would count in their memory.
                if linear is None and args.device == "cpu":
                    linear = run
                del run
            release(args.device)


def inference_table(args: Any) -> Iterator[Row]:
    """Folded heads beside the linear layer, forward only."""
    for batch, width, classes in args.sizes:
        features = torch.randn(batch, width, device=args.device)
        linear = nn.Linear(width, classes, device=args.device)
        head = tl.LACE(width, classes, device=args.device)
        head.background.observe(features)
        models = {"linear": linear, "lace": head.eval(), "lace folded": head.fold()}
        base = 0.0
        for name, model in models.items():
            with torch.inference_mode():
                for _ in range(5):
                    model(features)
                forward = functools.partial(model, features)
                times = [clock(forward, args.device) for _ in range(args.steps)]
            median = statistics.median(times)
            base = base or median
            row: Row = {"batch": batch, "width": width, "classes": classes, "mode": "inference"}
            row |= {"precision": args.precision, "head": name, "median_ms": median}
            row |= {"mean_ms": statistics.fmean(times), "x_linear": median / base}
            yield row
        release(args.device)


def classes_table(args: Any) -> Iterator[Row]:
    """Many classes: the dense loss beside the chunked one, batch 4,096 of 512 features."""
    for classes in (10_000, 100_000, 1_000_000):
        for name in args.heads or ("softmax", "lace", "arcface"):
            for chunk in (None, "auto" if classes > 50_000 else 8192):
                mode = "dense" if chunk is None else "chunked"
                row = {"batch": 4096, "width": 512, "classes": classes, "mode": mode}
                row |= {"precision": args.precision, "head": name}
                try:
                    head = tl.heads.create(name, 512, classes, device=args.device, chunk=chunk)
                    shape = (4096, 512, classes)
                    run, peak = prepared(head, head.loss, shape, "eager", args)
                    row |= measure(run, peak, None, args)
                except torch.OutOfMemoryError:
                    row |= {
                        "median_ms": float("nan"),
                        "mean_ms": float("nan"),
                        "peak_mib": float("nan"),
                    }
                yield row
                head = run = None
                release(args.device)


def release(device: str) -> None:
    gc.collect()
    if device != "cpu":
        # Every stream that multiplied keeps a workspace of tens of MiB.
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()


def show(row: dict[str, Any]) -> None:
    cells = [
        f"{v:>11.3f}" if isinstance(v, float) else f"{v!s:>8}"
        for k, v in row.items()
        if k != "head"
    ]
    print(f"{row['head']:<26}", *cells, flush=True)


def save(rows: Iterable[Row], name: str, keep: bool) -> None:
    """Show and keep rows as they come: a run that is stopped leaves what it had."""
    with contextlib.ExitStack() as stack:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            show(row)
            if keep and writer is None:
                RESULTS.mkdir(exist_ok=True)
                file = stack.enter_context((RESULTS / name).open("w", newline="", buffering=1))
                writer = csv.DictWriter(file, list(row), lineterminator="\n")
                writer.writeheader()
            if writer is not None:
                texts = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()}
                writer.writerow(texts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", help="batch x width x classes, comma separated")
    parser.add_argument("--modes", help="of eager, compiled, graph; comma separated")
    parser.add_argument("--heads", help="names of heads, comma separated")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=("fp32", "tf32"), default="fp32")
    parser.add_argument("--tables", default="heads,inference,classes")
    parser.add_argument("--tag", default="", help="added to the names of the files")
    args = parser.parse_args()
    cuda = args.device != "cpu"
    torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    chosen = args.sizes or args.modes
    sizes = args.sizes or ("4096x2048x10000,256x512x100" if cuda else "128x2048x100,256x512x100")
    args.sizes = [tuple(map(int, size.split("x"))) for size in sizes.split(",")]
    args.modes = (args.modes or ("eager,compiled,graph" if cuda else "eager,compiled")).split(",")
    args.heads = args.heads and args.heads.split(",")
    args.name = ""
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.manual_seed(0)
    kind = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {kind}, {args.precision}, {args.steps} steps")
    stem = f"{'cuda' if cuda else 'cpu'}-{args.precision}{args.tag}"
    keep = bool(args.tag) or not (args.heads or chosen)  # a part must not replace the whole
    if "heads" in args.tables:
        save(heads_table(args), f"heads-{stem}.csv", keep)
    if "inference" in args.tables:
        save(inference_table(args), f"inference-{stem}.csv", keep)
    if "classes" in args.tables and cuda:
        save(classes_table(args), f"classes-{stem}.csv", keep)


if __name__ == "__main__":
    main()
