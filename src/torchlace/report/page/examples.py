"""Test images worth looking at, and the sheets of small images that show them."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlace.data import Images
from torchlace.data.decode import as_picture
from torchlace.evaluation import Inspection
from torchlace.evaluation.scores import confusions

# An image is uncertain if its two likeliest classes are fewer percentage points apart.
UNSURE = 20
_WORST, _UNCERTAIN, _PAIRS, _OF_A_PAIR = 12, 12, 6, 6
# Pixels of a whole sheet: 5,000 images of 32 × 32.
_PIXELS = 5_120_000
_LARGEST = 96
_LOSSLESS = 400_000
_SHOWN = 72


@dataclass(frozen=True)
class Example:
    """One test image, by its place in the test split, and what it was taken for.

    ``chances`` are the probabilities of the two likeliest classes, in percent.
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
        """The probability of the likeliest class, in words."""
        return percent(f"{self.chances[0]:.0f}")

    @property
    def text(self) -> str:
        """A description for those who can't see the image."""
        return f"{self.true}, taken for {self.likeliest[0]} at {self.chance}"


@dataclass(frozen=True)
class Pair:
    """A class that is taken for another: how often, what percentage of its images, and examples.

    ``cell`` is its place in the confusion matrix.
    """

    true: str
    taken: str
    count: int
    share: float
    examples: list[Example]
    cell: tuple[int, int]


@dataclass(frozen=True)
class Examples:
    """Test images worth looking at: most confidently wrong, most uncertain, most confused."""

    worst: list[Example]
    uncertain: list[Example]
    pairs: list[Pair]

    @property
    def indices(self) -> set[int]:
        """Places of all of them in the test split."""
        every = [*self.worst, *self.uncertain, *(e for pair in self.pairs for e in pair.examples)]
        return {example.index for example in every}


@dataclass(frozen=True)
class Sheet:
    """Many small images side by side in one picture, of which the page shows a cell at a time.

    A cell has a side of ``cell`` pixels in the picture and ``shown`` on the page; ``places`` says
    which is whose, by their place in the test split.
    """

    uri: str
    cell: int
    columns: int
    rows: int
    shown: int
    places: dict[int, int]

    def position(self, index: int) -> str:
        """Where the picture must be moved to show this image, as CSS."""
        row, column = divmod(self.places[index], self.columns)
        return f"-{column * self.shown}px -{row * self.shown}px"


def find_examples(found: Inspection) -> Examples:
    """The images of a run that are worth looking at, by its calibrated probabilities."""
    chances = (found.logits.double() / found.temperature).softmax(dim=1)
    top, chosen = chances.max(dim=1)
    # With a single class, the second likeliest has no chance.
    likeliest = torch.nn.functional.pad(chances, (0, 1)).topk(2, dim=1).values
    margin = likeliest[:, 0] - likeliest[:, 1]
    names = found.class_names

    def highest(values: Tensor, among: Tensor, count: int) -> list[Example]:
        places = among.nonzero().flatten()
        places = places[values[places].argsort(descending=True, stable=True)[:count]]
        picked = []
        for index in places.tolist():
            first, second = chances[index].argsort(descending=True, stable=True)[:2].tolist()
            shares = (100 * float(chances[index, first]), 100 * float(chances[index, second]))
            own = names[int(found.labels[index])]
            picked.append(Example(index, own, (names[first], names[second]), shares))
        return picked

    pairs = []
    for true, taken, count in confusions(found.scores["confusion"], _PAIRS):
        own = found.labels == true
        share = 100 * count / int(own.sum())
        members = highest(top, own & (chosen == taken), _OF_A_PAIR)
        pairs.append(Pair(names[true], names[taken], count, share, members, (true, taken)))
    return Examples(
        highest(top, chosen != found.labels, _WORST),
        highest(-margin, 100 * margin < UNSURE, _UNCERTAIN),
        pairs,
    )


def make_sheet(images: Images, indices: Sequence[int]) -> Sheet:
    """Draw the images at ``indices`` side by side, smaller where they are many or large."""
    from PIL import Image

    channels, height, width = images.shape
    fitting = int(math.sqrt(_PIXELS / len(indices)))
    cell = max(1, min(max(height, width), _LARGEST, fitting))
    columns = math.ceil(math.sqrt(len(indices)))
    rows = math.ceil(len(indices) / columns)
    sheet = Image.new("RGB" if channels == 3 else "L", (columns * cell, rows * cell))
    for start in range(0, len(indices), 512):
        batch = images.batch(torch.tensor(indices[start : start + 512]))
        for place, image in enumerate(batch, start=start):
            picture = as_picture(image)
            picture.thumbnail((cell, cell), Image.Resampling.LANCZOS)
            row, column = divmod(place, columns)
            left, top = (cell - picture.width) // 2, (cell - picture.height) // 2
            sheet.paste(picture, (column * cell + left, row * cell + top))
    file = io.BytesIO()
    small = sheet.width * sheet.height * len(sheet.getbands()) <= _LOSSLESS
    sheet.save(file, "WEBP", lossless=small, quality=90 if small else 72, method=4)
    return Sheet(
        "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode(),
        cell,
        columns,
        rows,
        # Small images grow by a whole number, so that their pixels stay square.
        _SHOWN // cell * cell if cell <= _SHOWN else _SHOWN,
        {index: place for place, index in enumerate(indices)},
    )


def percent(number: str) -> str:
    """A number with its sign, which no line separates from it."""
    return f"{number}\u00a0%"
