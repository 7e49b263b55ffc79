"""All figures of merit of a finished run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlace._reporter import Reporter
from torchlace.evaluation.clusters import agreement, cluster_scores
from torchlace.evaluation.geometry import Spaces, angle_scores, spaces, whitening_scores
from torchlace.evaluation.kept import Extracted, extract, keep, kept_object
from torchlace.evaluation.measures import own
from torchlace.evaluation.scores import (
    calibration_scores,
    class_accuracies,
    classification_scores,
    confusion_matrix,
)
from torchlace.functional import unit
from torchlace.heads import Head
from torchlace.runs import Run, TrainConfig, load_run
from torchlace.runs.load import file_digest
from torchlace.runs.run import versions

# Raised whenever a figure changes its meaning, so that those written before are made anew.
FORMAT = 1
# Of percentages.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Inspection:
    """A finished run, what its network makes of the test split, and all scores.

    Attributes:
        path: the run's directory.
        config: its settings.
        facts: what it found out at its start: classes, image size, statistics, versions.
        result: result.json.
        history: the rows of metrics.csv as numbers.
        class_names: a name for each label.
        labels: true classes of the test split, (N,), on the CPU like all tensors here.
        logits: (N, C), before the temperature.
        features: the backbone's output, (N, d).
        whitened: features whitened by the background, (N, k); None where the head has not one
            background for all classes.
        signatures: class vectors where features are compared, (C, k): whitened for LACE.
        raw_signatures: where these lie among the features, (C, d); the lengths are those of a
            typical sample, since cosines don't have any.
        head: the trained head, in evaluation mode.
        temperature: what logits are divided by for probabilities.
        scores: what evaluation.json says; docs/evaluation.md explains every figure.
        key: digests of weights and data that all this belongs to.
    """

    path: Path
    config: TrainConfig
    facts: dict[str, Any]
    result: dict[str, Any]
    history: list[dict[str, Any]]
    class_names: list[str]
    labels: Tensor
    logits: Tensor
    features: Tensor
    whitened: Tensor | None
    signatures: Tensor
    raw_signatures: Tensor
    head: Head
    temperature: float
    scores: dict[str, Any]
    key: dict[str, str]

    @property
    def probabilities(self) -> Tensor:
        """Calibrated probabilities of the classes, (N, C), fp64."""
        return (self.logits.double() / self.temperature).softmax(dim=1)

    @property
    def figures(self) -> dict[str, Any]:
        """What measures find their values in: result.json and the scores, if they say anything."""
        found = {**self.result, **self.scores}
        if len(self.class_names) <= 5:  # every class is among the first five
            del found["top5_accuracy"]
        return found


def inspect(
    path: Path | str | Run,
    *,
    device: str = "auto",
    reporter: Reporter | None = None,
    refresh: bool = False,
    root: Path | None = None,
) -> Inspection:
    """Examine a finished run: extract features, compute all scores, keep both beside the run.

    What an earlier call kept is used where weights and data are still the same.

    Args:
        path: a run directory.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        reporter: told of progress; see :class:`~torchlace.training.Reporter`.
        refresh: compute everything anew.
        root: where packs of data lie, if not where the run's settings say.

    Raises:
        RunError: where the run is unfinished, damaged or of another version.
    """
    reporter = reporter or Reporter()
    run = path if isinstance(path, Run) else Run(path)
    run.settings()  # first, since a folder without a run is not an unfinished run
    result, history = run.result(), run.history()
    loaded = load_run(run, device)
    found = extract(loaded, reporter, root=root, refresh=refresh)
    # The figures need fp64, which not every kind of device has.
    where = loaded.device if loaded.device.type == "cuda" else torch.device("cpu")
    head = loaded.model.head.to(where)
    seen = spaces(head, found.features.to(where))
    temperature = float(head.temperature)
    before = None if refresh else _kept(run, found.key, reporter)
    scores = before or _scores(found, seen, temperature, reporter)
    inspection = Inspection(
        path=run.path,
        config=loaded.config,
        facts=loaded.facts,
        result=result,
        history=history,
        class_names=list(loaded.facts["class_names"]),
        labels=found.labels,
        logits=found.logits,
        features=found.features,
        whitened=None if seen.whitened is None else seen.whitened.cpu(),
        signatures=seen.signatures.cpu(),
        raw_signatures=seen.raw_signatures.cpu(),
        head=head.cpu(),
        temperature=temperature,
        scores=scores,
        key=found.key,
    )
    added = _add_own(inspection)
    if added or before is None:
        scores["made_from"] = {"format": FORMAT, **found.key, "versions": versions()}
        keep(run.evaluation_path, [run.json_content(scores)], reporter)
    _compare(inspection, run, reporter)
    return inspection


def kept_scores(run: Run) -> dict[str, Any]:
    """The scores that an earlier inspection kept, if they are of today's weights; else none."""
    key = {"weights": file_digest(run.weights_path), "data": run.facts()["data_digest"]}
    return _kept(run, key, Reporter()) or {}


def _add_own(inspection: Inspection) -> bool:
    """Compute the measures that users registered, but those kept from before; whether any."""
    added = [each for each in own() if each.name not in inspection.scores]
    for each in added:
        value = None if each.compute is None else each.compute(inspection)
        inspection.scores[each.name] = _finite(None if value is None else float(value))
    return bool(added)


def _scores(
    found: Extracted, seen: Spaces, temperature: float, reporter: Reporter
) -> dict[str, Any]:
    device = seen.cosines.device
    features, labels = found.features.to(device), found.labels.to(device)
    scores: dict[str, Any] = {
        **classification_scores(found.logits, found.labels, temperature),
        **calibration_scores(found.logits, found.labels, temperature),
        "class_accuracy": class_accuracies(found.logits, found.labels),
        "confusion": confusion_matrix(found.logits, found.labels).tolist(),
    }
    if seen.cosines.shape[1] > 1:
        scores["angles"] = angle_scores(seen.cosines, labels)
    points = {"raw": features}
    if seen.whitened is not None:
        points["whitened"] = seen.whitened
    points |= {f"{name}_sphere": unit(each) for name, each in points.items()}
    scores["clusters"] = {}
    if not 1 < len(labels.unique()) < len(labels):  # too few images to speak of clusters
        points = {}
    for number, (name, each) in enumerate(points.items(), start=1):
        scores["clusters"][name] = cluster_scores(each, labels)
        reporter.progress("clusters", number, len(points))
    predicted = agreement(found.logits.argmax(dim=1), found.labels)
    scores["predicted_homogeneity"], scores["predicted_completeness"] = predicted
    if seen.whitened is not None and seen.factor is not None:
        scores["whitening"] = whitening_scores(seen.factor, seen.whitened)
    plain: dict[str, Any] = _finite(scores)
    return plain


def _kept(run: Run, key: dict[str, str], reporter: Reporter) -> dict[str, Any] | None:
    scores = kept_object(run, run.evaluation_path, reporter)
    scores.pop("digest", None)
    made, wanted = scores.get("made_from"), {"format": FORMAT, **key}
    same = isinstance(made, dict) and {name: made.get(name) for name in wanted} == wanted
    return scores if same else None


def _compare(found: Inspection, run: Run, reporter: Reporter) -> None:
    """Say so where the accuracy is not the one that the run ended with."""
    here, then = found.scores["accuracy"], found.result["test_accuracy"]
    same_data = found.key["data"] == found.facts["data_digest"]
    if same_data and abs(here - then) > _ROUNDING:
        reporter.message(
            f"note: the accuracy is {here:.4f} % here and {then:.4f} % in {run.result_path.name}; "
            "another device or precision changes a few decisions, anything else should not"
        )


def _finite(value: Any) -> Any:
    """JSON has no NaN: what is undefined becomes None."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
