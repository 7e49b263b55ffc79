"""The first classes of a set in an order drawn by a seed, before others come later."""

from __future__ import annotations

import dataclasses
import re
from typing import NamedTuple

import numpy as np
import torch

from torchlace.data.decode import DataError
from torchlace.data.files import subset
from torchlace.data.images import ImageData, Images

_NAME = re.compile(r"(.+):(\d+)@(\d+)")


class FirstClasses(NamedTuple):
    """A set, how many of its classes, and the seed of their order."""

    whole: str
    number: int
    order: int


def first_classes(source: str) -> FirstClasses | None:
    """What ``SET:COUNT@SEED`` stands for; None of any other name.

    Example:
        >>> first_classes("cifar100:50@1993")
        FirstClasses(whole='cifar100', number=50, order=1993)
    """
    found = _NAME.fullmatch(source)
    return FirstClasses(found[1], int(found[2]), int(found[3])) if found else None


def whole_source(source: str) -> str:
    """The name of the whole set, of which ``source`` is perhaps the first classes.

    Example:
        >>> whole_source("cifar100:50@1993"), whole_source("cifar10")
        ('cifar100', 'cifar10')
    """
    some = first_classes(source)
    return source if some is None else some.whole


def take_first(data: ImageData, count: int, order: int) -> ImageData:
    """The first classes in the order of a seed, numbered from 0 in that order.

    Example:
        >>> from torchlace.data import load_data
        >>> take_first(load_data("digits"), 3, 0).class_names
        ('2', '8', '4')
    """
    if not 2 <= count <= data.num_classes:
        raise DataError(
            f"{data.name} has {data.num_classes} classes: name 2 to {data.num_classes} of them, "
            f"got {count}"
        )
    chosen = np.random.RandomState(order).permutation(data.num_classes)  # the order of the field
    numbers = torch.from_numpy(np.argsort(chosen))

    def part(images: Images) -> Images:
        found = subset(images, (numbers[images.labels] < count).nonzero().flatten())
        found.labels = numbers[found.labels]
        return found

    return dataclasses.replace(
        data,
        name=f"{data.name}:{count}@{order}",
        train=part(data.train),
        test=part(data.test),
        class_names=tuple(data.class_names[label] for label in chosen[:count]),
        digest="",
    )
