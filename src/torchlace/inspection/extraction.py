"""The test split passed through the network once, and kept beside the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torchlace._checks import checks
from torchlace.data import DataError, ImageData
from torchlace.inspection import keeping
from torchlace.inspection.watching import Watcher
from torchlace.runs import Run, RunError, seals
from torchlace.runs.load import LoadedRun, file_digest, read_data
from torchlace.training.inputs import Batches, prepared

_TENSORS = ("features", "logits", "labels")
_BATCH = 512


@dataclass(frozen=True)
class Extracted:
    """What the network makes of the test split, on the CPU.

    Attributes:
        key: digests of the weights and of the data that this was made from.
        features: (N, d).
        logits: (N, C), before the temperature.
        labels: (N,).
    """

    key: dict[str, str]
    features: Tensor
    logits: Tensor
    labels: Tensor


def extract(loaded: LoadedRun, watcher: Watcher, *, root: Path | None, refresh: bool) -> Extracted:
    """Features, logits and labels of the test split: from beside the run where they are current."""
    weights = file_digest(loaded.run.weights_path)
    kept = None if refresh else _kept(loaded.run, weights, watcher)
    try:
        data = read_data(loaded, root)
    except (DataError, OSError) as error:
        if kept is None:
            raise RunError(str(error)) from error
        watcher.message(f"note: the data are not here ({error}); features kept earlier are used")
        return kept
    if data.digest != loaded.facts["data_digest"]:
        if data.drawn:
            return _kept_or_refused(kept, loaded, watcher)
        watcher.message("note: the data differ from those the run was trained on")
    if kept is not None and kept.key["data"] == data.digest:
        return kept
    found = _pass_through(loaded, data, {"weights": weights, "data": data.digest}, watcher)
    keeping.keep(loaded.run.features_path, _packed(found), watcher)
    return found


def _kept_or_refused(kept: Extracted | None, loaded: LoadedRun, watcher: Watcher) -> Extracted:
    """Of data that have changed, test images are drawn that the run may have learned from."""
    changed = f"{loaded.config.data} has changed since the run was trained on it"
    if kept is None:
        raise RunError(
            f"{changed}, and its test images are drawn from all: some drawn now are ones it "
            "learned from. Bring the data back as they were, or train again; images below train/ "
            "and test/ stay apart"
        )
    watcher.message(f"note: {changed}; features kept earlier are used")
    return kept


def _pass_through(
    loaded: LoadedRun, data: ImageData, key: dict[str, str], watcher: Watcher
) -> Extracted:
    names = loaded.facts["class_names"]
    if len(data.class_names) != len(names) or data.channels != loaded.facts["channels"]:
        raise RunError(
            f"{loaded.config.data} now holds {data.num_classes} classes and {data.channels} "
            f"channels; the run was trained for {len(names)} and {loaded.facts['channels']}"
        )
    model, device, total = loaded.model, loaded.device, len(data.test)
    if device.type == "cuda":
        model = model.to(memory_format=torch.channels_last)
    batches = Batches(data.test, torch.arange(total), device, workers=loaded.config.workers)
    features, logits, labels, done = [], [], [], 0
    with torch.no_grad(), checks(False):
        for images, targets in prepared(batches, loaded.prepare, _BATCH):
            found = model.embed(images).float()
            features.append(found)
            logits.append(model.head(found).float())
            labels.append(targets)
            done += len(targets)
            watcher.progress("features", done, total)
    everything = torch.cat(features).cpu()
    if not torch.isfinite(everything).all():
        raise RunError(
            f"{loaded.run.path}: the network gives NaN or infinite features; it diverged in "
            "training, so train it anew with a lower learning rate"
        )
    return Extracted(key, everything, torch.cat(logits).cpu(), torch.cat(labels).cpu())


def _packed(found: Extracted) -> Iterable[seals.Buffer]:
    from safetensors.torch import save

    tensors = {name: getattr(found, name).contiguous() for name in _TENSORS}
    return seals.sealed_tensors(save(tensors, {**found.key, "digest": seals.BLANK}))


def _kept(run: Run, weights: str, watcher: Watcher) -> Extracted | None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = keeping.kept(run, run.features_path, watcher)
    try:
        tensors, key = load(content or b""), seals.tensor_metadata(content or b"")
        if key.get("weights") != weights or "data" not in key:
            return None
        key = {name: key[name] for name in ("weights", "data")}
        return Extracted(key, *(tensors[name] for name in _TENSORS))
    except (SafetensorError, ValueError, KeyError):  # absent or of another kind: made anew
        return None
