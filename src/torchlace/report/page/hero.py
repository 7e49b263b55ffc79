"""The first row of the page: who is ahead, by how much, and its features in one look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchlace.report.page.ball import Colours, draw_ball
from torchlace.report.page.gather import Collection, Group, Shown
from torchlace.report.page.lead import Lead, find_lead, is_baseline
from torchlace.report.page.sentences import listed, percent, points

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
    """What the first row says and shows.

    Attributes:
        headline: who is ahead, or that it is a tie.
        tie: whether it is one.
        facts: the figures behind it.
        run: the run whose features are shown, the best of the winner.
        balls: its features before and, where there is such a space, after whitening.
    """

    headline: str
    tie: bool
    facts: list[Fact]
    run: Shown
    balls: list[Ball]


def make_hero(collection: Collection, groups: Sequence[Group], colours: Sequence[Colours]) -> Hero:
    """Say who is ahead of the baseline, which is softmax or else the second."""
    best, *others = groups
    run = max(best.runs, key=lambda run: run.accuracy)
    leads = {group.label: find_lead(best, group) for group in others}
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
        bool(level),
        facts,
        run,
        _balls(run, collection.class_names, colours),
    )


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


def _lead(baseline: str, lead: Lead) -> Fact:
    ends = f"{_signed(lead.low)} to {_signed(lead.high)}"
    verdict = "it may be chance, so call it a tie" if lead.tie else "more than chance would explain"
    about = f"95\u00a0% interval over the test images: {ends}; {verdict}"
    return Fact(f"Ahead of {baseline} by", points(lead.points), about)


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
