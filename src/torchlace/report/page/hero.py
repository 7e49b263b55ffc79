"""The first row of the page: who is ahead, by how much, whether by chance, and its features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchlace.evaluation.scores import confusions
from torchlace.experiments.tables import mean_interval
from torchlace.report.page.drawing import Colours, draw_ball
from torchlace.report.page.examples import percent
from torchlace.report.page.gather import Collection, Group, Shown

_SPACES = {"raw": "Before whitening", "whitened": "After whitening"}


@dataclass(frozen=True)
class Fact:
    """One large figure, what it is, and what it means."""

    name: str
    value: str
    about: str


@dataclass(frozen=True)
class Ball:
    """A sphere drawn as SVG, its space, and what is written under it."""

    drawing: str
    space: str
    about: str


@dataclass(frozen=True)
class Hero:
    """Who is ahead or that it is a tie, the figures behind it, and the features of the best run."""

    headline: str
    facts: list[Fact]
    sentences: list[str]
    run: Shown
    balls: list[Ball]


@dataclass(frozen=True)
class _Lead:
    """How far one setting is ahead of another on the same test images, and whether by chance.

    ``points`` is the difference of their mean accuracies, ``low`` and ``high`` the ends of its 95 %
    interval over the test images.
    """

    points: float
    low: float
    high: float
    tie: bool
    why: str


def make_hero(collection: Collection, groups: Sequence[Group], colours: Sequence[Colours]) -> Hero:
    """Say who is ahead of the baseline, which is softmax or else the second."""
    best, *others = groups
    run = max(best.runs, key=lambda run: run.accuracy)
    leads = {group.label: _find_lead(best, group) for group in others}
    level = [label for label, lead in leads.items() if lead.tie]
    facts = [_accuracy(best, len(collection.labels))]
    if others:
        baseline = others[0]
        if not is_baseline(run):
            baseline = next((group for group in others if is_baseline(group.runs[0])), baseline)
        facts.append(_lead(baseline.label, leads[baseline.label]))
    facts.append(_seeds(best))
    return Hero(
        _headline(best.label, level, alone=not others),
        facts,
        _summary(collection, groups, [lead.why for lead in leads.values()][:1]),
        run,
        _balls(run, collection.class_names, colours),
    )


def _summary(collection: Collection, groups: Sequence[Group], why: Sequence[str]) -> list[str]:
    """Who is right how often, by how much more than the next, and ``why`` that is chance or not."""
    best = groups[0]
    score = best.accuracy
    images = f"{len(collection.labels):,}\u00a0test images of {collection.data}"
    over = f" (mean of {len(best.runs)}\u00a0runs)" if len(best.runs) > 1 else ""
    first = f"{best.label} is right on {percent(score.text(1))} of {images}{over}"
    if len(groups) == 1:
        return [f"{first}.", *_weakness(best.runs[0])]
    second = groups[1]
    gap = _points(score.mean - second.accuracy.mean)
    more = "as often as" if gap == _points(0) else f"{gap} more than"
    first += f", {more} {second.label} ({percent(second.accuracy.text(1))})."
    sentences = [first, *why]
    if len(groups) > 2:
        others = [group.accuracy.mean for group in groups[2:]]
        ends = dict.fromkeys(f"{end:.1f}" for end in (min(others), max(others)))
        names = ", ".join(group.label for group in groups[2:])
        sentences.append(f"Behind them: {names}, {percent(' to '.join(ends))}.")
    return [*sentences, *_weakness(best.runs[0])]


def _find_lead(one: Group, other: Group) -> _Lead:
    """Compare two settings image by image, and by how much their runs scatter."""
    difference = 100 * (_right(one) - _right(other))
    low, high = mean_interval(difference)
    tie, why = _judge(one, other, within=low <= 0 <= high)
    return _Lead(float(difference.mean()), low, high, tie, why)


def _points(number: float) -> str:
    """A difference of percentages, to a tenth."""
    text = f"{number:.1f}"
    return f"{text}\u00a0{'point' if text == '1.0' else 'points'}"


def listed(names: Sequence[str]) -> str:
    """Names as a person lists them."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def is_baseline(run: Shown) -> bool:
    """Whether a run is of softmax, which the other heads are compared with."""
    return run.config.head == "softmax"


def _right(group: Group) -> NDArray[np.float64]:
    """For each test image, in what share of the runs it was recognised."""
    found = [run.inspection for run in group.runs]
    right = [each.logits.argmax(dim=1).eq(each.labels).numpy() for each in found]
    return np.asarray(np.mean(right, axis=0, dtype=np.float64))


def _judge(one: Group, other: Group, *, within: bool) -> tuple[bool, str]:
    """Whether it is a tie, and why; ``within`` if the interval over the images holds zero."""
    if len(one.runs) == len(other.runs) == 1:
        return _same_images(one, other)
    if min(len(one.runs), len(other.runs)) == 1:
        single = one if len(one.runs) == 1 else other
        return within, f"With one run of {single.label}, how much of that is chance can't be said."
    first, second = one.accuracy, other.accuracy
    error = sum((each.deviation or 0) ** 2 / len(each.values) for each in (first, second)) ** 0.5
    if abs(first.mean - second.mean) <= 2 * error:
        return True, "Their runs scatter as much: take it for a tie."
    if within:
        return True, (
            "That is more than their runs scatter, but other test images could turn it round: "
            "take it for a tie."
        )
    return False, "That is more than their runs scatter."


def _same_images(one: Group, other: Group) -> tuple[bool, str]:
    """McNemar's exact test: a fair coin for every image that only one of the two gets right."""
    from scipy.stats import binomtest

    ahead = _right(one) - _right(other)
    for_one, differing = int((ahead > 0).sum()), int((ahead != 0).sum())
    if not differing:
        return True, "They are right on the very same images."
    chance = float(binomtest(for_one, differing).pvalue)
    where = f"{differing:,}\u00a0image{'s' if differing > 1 else ''}"
    reading = "that can be chance" if chance > 0.05 else "that is hardly chance"
    size = "p\u00a0<\u00a00.001" if chance < 0.001 else f"p\u00a0=\u00a0{chance:.2g}"
    return chance > 0.05, (
        f"On {where} only one of the two is right, {one.label} on {for_one:,}: {reading} ({size})."
    )


def _weakness(run: Shown) -> list[str]:
    """A sentence about the most frequent mistake, unless it is so only by accident."""
    found = confusions(run.inspection.scores["confusion"], 1)
    if not found:
        return [f"{run.name} makes no mistake."]
    true, taken, count = found[0]
    names = run.inspection.class_names
    if count == 1:
        return []
    whose = f"The most frequent mistake of {run.name}"
    return [f"{whose}: {names[true]} taken for {names[taken]}, {count:,}\u00a0times."]


def _headline(best: str, level: Sequence[str], *, alone: bool) -> str:
    if level:
        shown = [best, *level]
        rest = len(shown) - 3
        return f"A tie: {listed([*shown[:3], f'{rest} more'] if rest > 0 else shown)}"
    return best if alone else f"{best} is right most often"


def _accuracy(best: Group, images: int) -> Fact:
    about = f"of {images:,}\u00a0test images, none of which {best.label} was trained on"
    if len(best.runs) > 1:
        about += f"; mean ± standard deviation of {len(best.runs)}\u00a0runs"
    return Fact("Right on", percent(best.accuracy.text(1)), about)


def _lead(baseline: str, lead: _Lead) -> Fact:
    ends = f"{_signed(lead.low)} to {_signed(lead.high)}"
    verdict = "it may be chance, so call it a tie" if lead.tie else "more than chance would explain"
    about = f"95\u00a0% interval over the test images: {ends}; {verdict}"
    return Fact(f"Ahead of {baseline} by", _points(lead.points), about)


def _seeds(best: Group) -> Fact:
    seeds = [str(seed) for seed in sorted(run.config.seed for run in best.runs)]
    if len(seeds) == 1:
        about = f"seed {seeds[0]}: more seeds would tell how much is luck"
        return Fact("Trained", "once", about)
    about = f"seeds {listed(seeds)}, each from other random numbers; all of them count here"
    return Fact("Trained", f"{len(seeds)}\u00a0times", about)


def _balls(run: Shown, names: Sequence[str], colours: Sequence[Colours]) -> list[Ball]:
    clusters = run.inspection.scores.get("clusters", {})
    balls = []
    for space, picture in run.spheres.items():
        labels = run.inspection.labels.numpy()[picture.indices]
        score = clusters.get(space, {}).get("silhouette_cosine")
        about = "" if score is None else f"silhouette by angles {score:.2f}"
        drawing = draw_ball(picture.points, picture.signatures, labels, names, colours)
        balls.append(Ball(drawing, _SPACES[space], about))
    return balls


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\u2212").replace("+0.0", "0.0").replace("\u22120.0", "0.0")
