"""The backgrounds that every test of the suite runs over; a registered one joins by its name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import torchlace as tl

WIDTH, CLASSES, ROWS = 6, 4, 16
DECAY = 0.9


@dataclass(frozen=True)
class Case:
    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, **options: Any) -> tl.backgrounds.Background:
        torch.manual_seed(0)
        return tl.backgrounds.create(self.name, WIDTH, CLASSES, **{**self.options, **options})


CASES = [Case(name, name) for name in tl.backgrounds.names()]
CASES += [
    Case(f"{name}-{part}-off", name, {part: False})
    for name in tl.backgrounds.names()
    for part in ("mean", "covariance")
]
CASES += [
    Case("total-ledoit-wolf", "total", {"shrinkage": "ledoit-wolf"}),
    Case("total-newton-schulz", "total", {"method": "newton-schulz"}),
    Case("learned-cholesky", "learned", {"form": "cholesky"}),
    Case("learned-matrix", "learned", {"form": "matrix"}),
    Case("low-rank-2", "low-rank", {"rank": 2}),
    Case("low-rank-total-2", "low-rank-total", {"rank": 2}),
    Case("low-rank-learned-2", "low-rank-learned", {"rank": 2}),
    Case("one-vs-all-newton-schulz", "one-vs-all", {"method": "newton-schulz"}),
    Case("one-vs-all-learned-2", "one-vs-all-learned", {"rank": 2}),
    Case("within-newton-schulz", "within", {"method": "newton-schulz", "ridge": 0.5}),
    Case("one-vs-one-ledoit-wolf", "one-vs-one", {"shrinkage": "ledoit-wolf"}),
]
RUNNING = [case for case in CASES if isinstance(case.build(), tl.backgrounds.Running)]
PLAIN_RUNNING = [case for case in RUNNING if not case.options]
# With moments of all samples, and of classes: what is dear is tried on these.
ONE_EACH = [case for case in PLAIN_RUNNING if case.name in ("total", "within")]
LEARNED = [case for case in CASES if case not in RUNNING]


def each(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.label) for c in cases])


def crossed(name: str, values: Sequence) -> pytest.MarkDecorator:
    """Estimated backgrounds with the first value, those without options with the others too."""
    pairs = [(case, values[0]) for case in RUNNING]
    pairs += [(case, value) for case in PLAIN_RUNNING for value in values[1:]]
    params = [pytest.param(case, value, id=f"{case.label}-{value}") for case, value in pairs]
    return pytest.mark.parametrize(("case", name), params)


def batches(
    steps: int, *, rows: int | None = ROWS, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[tuple[Tensor, Tensor]]:
    """Correlated features of uneven classes that drift; ``rows=None`` varies the batch size."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mix, centers, drift = normal(WIDTH, WIDTH), 2 * normal(CLASSES, WIDTH), 0.1 * normal(WIDTH)
    priors = torch.arange(1.0, CLASSES + 1)
    found = []
    for step in range(steps):
        count = rows or 9 + 5 * step % 12
        targets = torch.multinomial(priors, count, replacement=True, generator=generator)
        targets[: 2 * CLASSES] = torch.arange(2 * CLASSES) % CLASSES  # none is missing
        features = centers[targets] + normal(count, WIDTH) @ mix + step * drift
        found.append((features.to(dtype), targets))
    return found


def absolute(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state whose moments are in the units of the features: when the unit moves is no matter."""
    powers = {"covariance": 2, "variance": 2, "within": 2, "sketch": 2, "third": 3, "fourth": 4}
    found = {}
    for name, value in state.items():
        owner, _, part = name.rpartition("_")
        if part in powers and f"{owner}_unit" in state:
            value = value * state[f"{owner}_unit"] ** powers[part]
        if part != "unit":
            found[name] = value
    return found


def trained(case: Case, steps: int = 7, **options: Any) -> tl.backgrounds.Background:
    """In fp64, away from its start: by training steps, or by a random move of its parameters."""
    background = case.build(dtype=torch.float64, **options)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in background.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.3 * noise
    for features, targets in batches(steps):
        background.observe(features, targets)
    return background
