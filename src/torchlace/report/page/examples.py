"""Test images worth looking at: the worst, the most uncertain, the most confused."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchlace.inspection import Inspection
from torchlace.report.page.measures import percent
from torchlace.report.page.summary import confusions

# Points between the two likeliest classes, below which an image counts as uncertain.
UNSURE = 20
_WORST, _UNCERTAIN, _PAIRS, _OF_A_PAIR = 12, 12, 6, 6


@dataclass(frozen=True)
class Example:
    """One test image and what was made of it.

    Attributes:
        index: its place in the test split.
        true: its class.
        likeliest: the two likeliest classes.
        chances: their probabilities, in percent.
    """

    index: int
    true: str
    likeliest: tuple[str, str]
    chances: tuple[float, float]

    @property
    def right(self) -> bool:
        """Whether the likeliest class is its own."""
        return self.true == self.likeliest[0]

    @property
    def chance(self) -> str:
        """Of the likeliest class, in words."""
        return percent(f"{self.chances[0]:.0f}")

    @property
    def text(self) -> str:
        """What there is to say of it."""
        return f"{self.true}, taken for {self.likeliest[0]} at {self.chance}"


@dataclass(frozen=True)
class Pair:
    """A class that is taken for another.

    Attributes:
        true: the class.
        taken: the other.
        count: how often.
        share: how often of its images, in percent.
        examples: some of them, the most confident first.
    """

    true: str
    taken: str
    count: int
    share: float
    examples: list[Example]


@dataclass(frozen=True)
class Examples:
    """Test images worth looking at.

    Attributes:
        worst: most confidently wrong.
        uncertain: their two likeliest classes closer than ``UNSURE`` points, the closest first.
        pairs: most confused.
    """

    worst: list[Example]
    uncertain: list[Example]
    pairs: list[Pair]

    @property
    def indices(self) -> set[int]:
        """Places of all of them in the test split."""
        every = [*self.worst, *self.uncertain, *(e for pair in self.pairs for e in pair.examples)]
        return {example.index for example in every}


def examples(found: Inspection) -> Examples:
    """The images of a run that are worth looking at, by its calibrated probabilities."""
    chances = (found.logits.double() / found.temperature).softmax(dim=1)
    top, chosen = chances.max(dim=1)
    wrong = chosen != found.labels
    # With a single class, the second likeliest has no chance.
    likeliest = torch.nn.functional.pad(chances, (0, 1)).topk(2, dim=1).values
    margin = likeliest[:, 0] - likeliest[:, 1]
    pairs = []
    for true, taken, count in confusions(found.scores["confusion"], _PAIRS):
        members = _highest(top, (found.labels == true) & (chosen == taken), _OF_A_PAIR)
        of_class = int((found.labels == true).sum())
        pairs.append(
            Pair(
                found.class_names[true],
                found.class_names[taken],
                count,
                100 * count / of_class,
                _examples(found, chances, members),
            )
        )
    return Examples(
        _examples(found, chances, _highest(top, wrong, _WORST)),
        _examples(found, chances, _highest(-margin, 100 * margin < UNSURE, _UNCERTAIN)),
        pairs,
    )


def _highest(values: Tensor, among: Tensor, count: int) -> Tensor:
    places = among.nonzero().flatten()
    return places[values[places].argsort(descending=True, stable=True)[:count]]


def _examples(found: Inspection, chances: Tensor, places: Tensor) -> list[Example]:
    names, most = found.class_names, min(2, chances.shape[1])
    values, order = chances[places].topk(most, dim=1)
    return [
        Example(
            index,
            names[int(found.labels[index])],
            (names[classes[0]], names[classes[-1]]),
            (100 * shares[0], 100 * shares[-1]),
        )
        for index, classes, shares in zip(
            places.tolist(), order.tolist(), values.tolist(), strict=True
        )
    ]
