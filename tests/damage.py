"""Random damage to the files of runs: whether a command ever shows other figures in silence.

    python tests/damage.py --count 1000 --seed 0

Every mutation changes one file of a copied run: a bit, a byte or a block is changed, cut out, put
in or moved, or the end is cut off. Then every command that reads runs is given the copy. It may do
what it does with the intact run, or say what is wrong in a line; a traceback, or other figures with
exit code 0, is a fault. The exit code is 1 if there were any.
"""

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

from safetensors.torch import load_file
from training.stopping import StopAfter, StoppedError
from typer.testing import CliRunner

from torchlace.cli import app
from torchlace.evaluation import inspect, picture
from torchlace.training import Run, TrainConfig, train

# TensorBoard's curves and the lock are written and never read.
FILES = (
    *("config.yaml", "metrics.csv", "last.ckpt", "best.safetensors", "result.json"),
    *("evaluation.json", "features.safetensors", "embedding-raw-pca-3d.npz"),
)
COMMANDS = {
    "train": ("train", "--config", "{config}", "--run", "{run}", "--json"),
    "predict": ("predict", "{run}", "{image}", "--json"),
    "evaluate": ("evaluate", "{run}", "--json"),
    "compare": ("compare", "{run}", "--json"),
    "export": ("export", "{run}", "--out", "{out}/model.onnx"),
    "report": ("report", "{run}", "--output", "{out}/report.html", "--method", "pca"),
}
# What takes a second or more is tried for every so many mutations only.
SELDOM = {"export": 20, "report": 10}
TIMES = ("seconds", "images_per_second", "digest")


def make_runs(folder):
    """Runs in every state: finished and examined, finished, half done, begun."""
    settings = {"epochs": 3, "batch_size": 128, "device": "cpu", "lr": 0.003}
    runs = {}
    for name, options in (("examined", {"head": "lace"}), ("finished", {"head": "arcface"})):
        runs[name] = folder / name
        train(TrainConfig(**settings, **options), runs[name])
    picture(inspect(runs["examined"], device="cpu"), method="pca", dim=3)
    runs["half done"] = folder / "half done"
    with contextlib.suppress(StoppedError):
        train(TrainConfig(**settings, ema=0.9), runs["half done"], reporter=StopAfter(2))
    runs["begun"] = folder / "begun"
    runs["begun"].mkdir()
    shutil.copy(runs["finished"] / "config.yaml", runs["begun"])
    return runs


def mutate(content, rng):
    """Bytes that differ from these, and how."""
    size = len(content)
    at = rng.randrange(size)
    length = min(rng.choice((1, 2, 8, 64, 512)), size - at)
    end = at + length
    kinds = {
        "bit": content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :],
        "byte": content[:at] + rng.randbytes(1) + content[at + 1 :],
        "zeros": content[:at] + bytes(length) + content[end:],
        "noise": content[:at] + rng.randbytes(length) + content[end:],
        "cut out": content[:at] + content[end:],
        "put in": content[:at] + rng.randbytes(length) + content[at:],
        "twice": content[:end] + content[at:],
        "end": content[:at],
    }
    kind = rng.choice(sorted(kinds))
    return kind, kinds[kind]


def outcome(command, run, place):
    """What a command does: its exit code, its figures, what it says, and whether it crashed."""
    out = place / "out"
    out.mkdir(exist_ok=True)
    resumed = not Run(run).finished
    words = {"run": run, "image": place / "image.png", "out": out, "config": place / "config.yaml"}
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = CliRunner().invoke(app, [part.format(**words) for part in COMMANDS[command]])
    crashed = done.exception is not None and not isinstance(done.exception, SystemExit)
    figures = _figures(command, done, run, out, resumed) if done.exit_code == 0 else None
    said = done.stderr
    if command == "compare" and done.exit_code:  # it says so in its table
        said += "".join(f"error: {row['error']}" for row in json.loads(done.stdout or "[]"))
    return done.exit_code, figures, said, repr(done.exception) if crashed else ""


def _figures(command, done, run, out, resumed):
    if command == "report":
        return (out / "report.html").stat().st_size > 100_000
    if command == "export":
        return (out / "model.onnx").read_bytes()
    found = json.loads(done.stdout)
    if command == "compare":
        return [{**row, "run": ""} for row in found if "error" not in row]
    if command == "predict":
        return found
    found = {name: value for name, value in found.items() if name not in (*TIMES, "run")}
    if command == "train" and resumed:
        rows = [[row[name] for name in row if name not in TIMES] for row in Run(run).history()]
        weights = load_file(Run(run).weights_path)
        return found, rows, {name: value.tolist() for name, value in weights.items()}
    return found


def survey(count, seed, place, report=lambda text: None):
    """Mutate and look; faults as texts, and how often commands did what."""
    from PIL import Image

    rng, seen, faults = random.Random(seed), Counter(), []
    runs = make_runs(place)
    Image.radial_gradient("L").resize((8, 8)).save(place / "image.png")
    wanted = {}
    for name, run in runs.items():
        for command in COMMANDS:
            shutil.copy(run / "config.yaml", place / "config.yaml")
            wanted[name, command] = outcome(command, _copy(run, place / "intact"), place)
    targets = [(n, file) for n, run in runs.items() for file in FILES if (run / file).exists()]
    for number in range(count):
        name, file = targets[number % len(targets)]
        kind, content = mutate((runs[name] / file).read_bytes(), rng)
        if content == (runs[name] / file).read_bytes():
            continue
        shutil.copy(runs[name] / "config.yaml", place / "config.yaml")
        for command in COMMANDS:
            if number // len(targets) % SELDOM.get(command, 1):
                continue
            run = _copy(runs[name], place / "mutant")
            (run / file).write_bytes(content)
            code, figures, said, crash = outcome(command, run, place)
            verdict = _verdict(wanted[name, command], code, figures, said, crash)
            seen[verdict] += 1
            if verdict in ("traceback", "silent"):
                faults.append(f"{verdict}: {command} of {name}, {file}, {kind}: {crash or said}")
                report(faults[-1])
        if number % 50 == 49:
            report(f"{number + 1} mutations: {dict(seen)}")
    return faults, seen


def _verdict(wanted, code, figures, said, crash):
    if crash or (code and said.count("error:") != 1):
        return "traceback"
    if code:
        return "the same error" if wanted[0] else "an error"
    if wanted[0] == 0 and figures == wanted[1]:
        return "the same" if said == wanted[2] else "the same, with a note"
    return "silent"


def _copy(run, to):
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("events.out*", ".lock"))
    return to


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        faults, seen = survey(args.count, args.seed, Path(folder), print)
    print(f"{args.count} mutations in {time.monotonic() - start:.0f} s:")
    for verdict, times in seen.most_common():
        print(f"{times:7,}  {verdict}")
    print(f"{len(faults):7,}  faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
