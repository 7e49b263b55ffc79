"""What is kept beside a run for the next time: features of its test images, scores, pictures."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlace._reporter import Reporter
from torchlace.data import DataError, ImageData, Images, image_batches
from torchlace.models.predict import BATCH, Prediction, predict
from torchlace.runs import LoadedRun, Run, RunError, read_data, seals, write_whole
from torchlace.runs.load import file_digest
from torchlace.runs.readers import read_object

_NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)
_TENSORS = ("features", "logits", "labels")


@dataclass(frozen=True)
class Extracted:
    """What the network makes of the test images, on the CPU.

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


def kept(run: Run, path: Path, reporter: Reporter) -> bytes | None:
    """The content of a file that was kept beside a run; None where there is none or it is damaged.

    Damage is told of and no error, since the file can be made anew from the run.
    """
    if not path.exists():
        return None
    try:
        return run.read(path)
    except RunError as error:
        reason = str(error).partition(". ")[0]
        reporter.message(f"note: {reason}; it is made anew")
        return None


def kept_object(run: Run, path: Path, reporter: Reporter) -> dict[str, Any]:
    """What the JSON says that was kept beside a run; nothing where there is none to be used."""
    content = kept(run, path, reporter)
    try:
        return read_object(content.decode()) if content else {}
    except ValueError:  # of another kind: made anew
        return {}


def keep(path: Path, content: Iterable[seals.Buffer], reporter: Reporter) -> None:
    """Write a file beside a run; where only others may write there, say so and do without.

    Raises:
        RunError: if there is no room for it.
    """
    try:
        write_whole(path, lambda file: file.writelines(content))
    except RunError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NOT_OURS:
            raise
        reporter.message(
            f"note: {path} can't be kept ({cause.strerror}), so it is made anew next time"
        )


def extract(
    loaded: LoadedRun, reporter: Reporter, *, root: Path | None, refresh: bool
) -> Extracted:
    """Features, logits and labels of the test images: from beside the run where still true."""
    weights = file_digest(loaded.run.weights_path)
    before = None if refresh else _kept(loaded.run, weights, reporter)
    try:
        data = read_data(loaded, root)
    except (DataError, OSError) as error:
        if before is None:
            raise RunError(str(error)) from error
        reporter.message(f"note: the data are not here ({error}); features kept earlier are used")
        return before
    if data.digest != loaded.facts["data_digest"]:
        if data.drawn:
            return _kept_or_refused(before, loaded, reporter)
        reporter.message("note: the data differ from those the run was trained on")
    if before is not None and before.key["data"] == data.digest:
        return before
    found = _pass_through(loaded, data, {"weights": weights, "data": data.digest}, reporter)
    keep(loaded.run.features_path, _packed(found), reporter)
    return found


def predictions(
    loaded: LoadedRun,
    images: Images,
    chosen: Tensor,
    what: str = "features",
    reporter: Reporter | None = None,
    change: Callable[[Tensor], Tensor] = lambda batch: batch,
) -> Prediction:
    """Features and logits of the chosen images, each batch changed before it is prepared."""
    done = 0

    def batches() -> Iterator[Tensor]:
        nonlocal done
        parts = chosen.split(BATCH)
        for batch in image_batches(images, parts, loaded.device, loaded.config.workers):
            yield change(batch)
            done += len(batch)
            if reporter is not None:
                reporter.progress(what, done, len(chosen))

    return predict(loaded.model, batches(), loaded.prepare)


def _kept_or_refused(before: Extracted | None, loaded: LoadedRun, reporter: Reporter) -> Extracted:
    """Of data that have changed, test images are drawn that the run may have learned from."""
    changed = f"{loaded.config.data} has changed since the run was trained on it"
    if before is None:
        raise RunError(
            f"{changed}, and its test images are drawn from all: some drawn now are ones it "
            "learned from. Bring the data back as they were, or train again; images below train/ "
            "and test/ stay apart"
        )
    reporter.message(f"note: {changed}; features kept earlier are used")
    return before


def _pass_through(
    loaded: LoadedRun, data: ImageData, key: dict[str, str], reporter: Reporter
) -> Extracted:
    names = loaded.facts["class_names"]
    if len(data.class_names) != len(names) or data.channels != loaded.facts["channels"]:
        raise RunError(
            f"{loaded.config.data} now holds {data.num_classes} classes and {data.channels} "
            f"channels; the run was trained for {len(names)} and {loaded.facts['channels']}"
        )
    found = predictions(loaded, data.test, torch.arange(len(data.test)), "features", reporter)
    if not torch.isfinite(found.features).all():
        raise RunError(
            f"{loaded.run.path}: the network gives NaN or infinite features; it diverged in "
            "training, so train it anew with a lower learning rate"
        )
    return Extracted(key, found.features.cpu(), found.logits.cpu(), data.test.labels)


def _packed(found: Extracted) -> Iterable[seals.Buffer]:
    from safetensors.torch import save

    tensors = {name: getattr(found, name).contiguous() for name in _TENSORS}
    return seals.sealed_tensors(save(tensors, {**found.key, "digest": seals.BLANK}))


def _kept(run: Run, weights: str, reporter: Reporter) -> Extracted | None:
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = kept(run, run.features_path, reporter)
    try:
        tensors, key = load(content or b""), seals.tensor_metadata(content or b"")
        if key.get("weights") != weights or "data" not in key:
            return None
        key = {name: key[name] for name in ("weights", "data")}
        return Extracted(key, *(tensors[name] for name in _TENSORS))
    except (SafetensorError, ValueError, KeyError):  # absent or of another kind: made anew
        return None
