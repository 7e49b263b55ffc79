"""Samples of no known class: how well a finished run tells them apart, and rejecting them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlace._reporter import Reporter
from torchlace.data import DataError, Images, load_data, stratified_split
from torchlace.evaluation.kept import keep, kept_object, predictions
from torchlace.models.predict import Prediction
from torchlace.runs import LoadedRun, Run, RunError, load_run, read_data

Apart = dict[str, dict[str, dict[str, float]]]
"""By score and set, what :func:`torchlace.detection.separation` says."""
# So many training images tell a score what known classes look like.
_LEARNED = 10_000


class Known(NamedTuple):
    """What the network of a run makes of images of its own classes."""

    train: Prediction
    """Training images, at most 10,000 of them, drawn by class."""
    train_labels: Tensor
    held: Prediction
    """The images that were held out for validation."""
    held_labels: Tensor


def unknown_scores(
    path: Path | str | Run,
    sources: Sequence[str],
    *,
    device: str = "auto",
    reporter: Reporter | None = None,
    root: Path | None = None,
) -> Apart:
    """How well each score tells a run's test images from those of other sets; kept beside it.

    By score and source it is what :func:`torchlace.detection.separation` says.

    Args:
        path: of a finished run.
        sources: sets of other classes, as :func:`torchlace.data.load_data` takes them. Their test
            images are brought to the size and the channels of the run's.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        reporter: told of progress.
        root: where packs of data lie.
    """
    from torchlace.detection import separations

    reporter = reporter or Reporter()
    loaded = load_run(path, device)
    loaded.run.result()  # an unfinished run has no say yet
    try:
        sets = {source: load_data(source, root).test for source in sources}
    except (DataError, OSError) as error:
        raise type(error)(f"images of no known class: {error}") from error
    known = known_samples(loaded, reporter, root)
    data = read_data(loaded, root)
    test = _predictions(loaded, data.test, torch.arange(len(data.test)), "test images", reporter)
    others = {
        source: _predictions(loaded, images, torch.arange(len(images)), source, reporter)
        for source, images in sets.items()
    }
    labels = known.train_labels.to(known.train.features.device)
    found = separations(known.train, labels, test, others)
    before = kept_unknown(loaded.run, reporter)
    merged = {name: {**before.get(name, {}), **each} for name, each in found.items()}
    keep(loaded.run.unknown_path, [loaded.run.json_content({"scores": merged})], reporter)
    return found


def kept_unknown(run: Run, reporter: Reporter | None = None) -> Apart:
    """What earlier calls of :func:`unknown_scores` have found out about a run."""
    scores = kept_object(run, run.unknown_path, reporter or Reporter()).get("scores")
    return scores if isinstance(scores, dict) else {}


def known_samples(loaded: LoadedRun, reporter: Reporter, root: Path | None = None) -> Known:
    """What a run's network makes of the images it was trained on and of those held out."""
    config, data = loaded.config, read_data(loaded, root)
    if data.digest != loaded.facts["data_digest"]:
        raise RunError(
            f"{config.data} has changed since the run was trained on it, so that which images it "
            "learned from is not known any more: bring the data back as they were, or train again"
        )
    labels = data.train.labels
    train, held = stratified_split(labels, config.validation, config.seed)
    if len(train) > _LEARNED:
        train = train[stratified_split(labels[train], _LEARNED / len(train), config.seed)[1]]
    return Known(
        _predictions(loaded, data.train, train, "training images", reporter),
        labels[train],
        _predictions(loaded, data.train, held, "held-out images", reporter),
        labels[held],
    )


def guard(
    loaded: LoadedRun,
    false_rejection: float,
    *,
    reporter: Reporter | None = None,
    root: Path | None = None,
) -> Any:
    """An :class:`~torchlace.detection.OpenSet` of a run's features, ready to reject.

    Its threshold is set by the held-out images, so that it rejects a new image of a known class
    with a chance of at most ``false_rejection``.
    """
    from torchlace.detection import OpenSet

    known = known_samples(loaded, reporter or Reporter(), root)
    guarded = OpenSet(loaded.model.head, false_rejection=false_rejection)
    learned = known.train.features.cpu(), known.train_labels
    return guarded.fit(known.held.features.cpu(), known.held_labels, train=learned)


def _predictions(
    loaded: LoadedRun, images: Images, chosen: Tensor, what: str, reporter: Reporter
) -> Prediction:
    """Features and logits of some images, brought to the size and the channels of the run's."""
    change = partial(_brought, facts=loaded.facts)
    found = predictions(loaded, images, chosen, what, reporter, change)
    # Scores compute in double precision, which other devices may lack.
    return found if loaded.device.type == "cuda" else Prediction(*(each.cpu() for each in found))


def _brought(images: Tensor, facts: dict[str, Any]) -> Tensor:
    size, channels = tuple(facts["size"]), facts["channels"]
    if tuple(images.shape[-2:]) == size and images.shape[1] == channels:
        return images
    pixels = images.float()
    if pixels.shape[1] == 3 and channels == 1:
        weights = pixels.new_tensor([0.299, 0.587, 0.114])
        pixels = (pixels * weights[:, None, None]).sum(1, keepdim=True)
    pixels = pixels.expand(-1, channels, -1, -1)
    pixels = F.interpolate(pixels, size, mode="bilinear", antialias=True)
    return pixels.round().clamp(0, 255).to(torch.uint8)
