"""The heads that every conformance test runs on, and the data they run on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

import torchlace as tl
from torchlace.backgrounds import ClasswiseBackground, Running
from torchlace.heads import AdaCos, CosineHead, Head

WIDTH, CLASSES = 6, 5

RANKS = dict.fromkeys(("low-rank", "low-rank-total", "low-rank-learned", "one-vs-all-learned"), 2)


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[..., Head]

    def __repr__(self) -> str:
        return self.name


def registered(name: str) -> Case:
    def build(width, classes, **options):
        return tl.heads.create(name, width, classes, **options)

    return Case(name, build)


def variant(label: str, name: str = "lace", **settings) -> Case:
    def build(width, classes, **options):
        return tl.heads.create(name, width, classes, **settings, **options)

    return Case(label, build)


def lace_on(background: str) -> Case:
    options = {"rank": RANKS[background]} if background in RANKS else {}
    if "learned" not in background:
        options["refresh_every"] = 3
    return variant(f"lace on {background}", background=background, background_options=options)


def joint() -> Case:
    def build(width, classes, **options):
        heads = {
            name: tl.heads.create(name, width, classes, **options)
            for name in ("softmax", "lace", "arcface")
        }
        return tl.Joint(heads, {"softmax": 0.5, "lace": 0.3, "arcface": 0.2})

    return Case("joint", build)


def options(**background_options) -> dict:
    return {"background_options": {"refresh_every": 3, **background_options}}


CASES = [
    *map(registered, tl.heads.names()),
    *map(lace_on, tl.backgrounds.names()),
    variant("lace ledoit-wolf", background="total", **options(shrinkage="ledoit-wolf")),
    variant("lace newton-schulz", **options(method="newton-schulz", ridge=1.0)),
    variant("lace neither anchored nor biased", anchored=False, bias=False, **options()),
    variant("lace nonnegative", nonnegative=True),
    variant("lace in feature space", signature_space="features", **options()),
    variant("lace mean only", covariance=False, **options()),
    variant("lace covariance only", mean=False, **options()),
    variant("lace neither", mean=False, covariance=False, **options()),
    variant("lace-learned mean only", "lace-learned", covariance=False),
    variant("lace-learned covariance only", "lace-learned", mean=False),
    variant("lace-published neither", "lace-published", mean=False, covariance=False),
    variant("lace-learned cholesky", "lace-learned", background_options={"form": "cholesky"}),
    variant(
        "lace low-rank-learned whitened",
        background="low-rank-learned",
        signature_space="whitened",
        background_options={"rank": 2},
    ),
    variant(
        "lace one-vs-all mean only", background="one-vs-all", covariance=False, **options(decay=0.9)
    ),
    variant(
        "lace one-vs-one covariance only",
        background="one-vs-one",
        mean=False,
        **options(decay="auto"),
    ),
    variant("lace learned scale", scale="learned"),
    variant("normface learned scale", "normface", scale="learned"),
    variant("amc wide margin", "amc", margin=2.5, auxiliary_weight=2.0),
    variant("arcface wide margin", "arcface", margin=0.8, scale=4.0),
    variant("sphereface wide margin", "sphereface", margin=3.0, scale=4.0),
    joint(),
]

# One for each way through the code, for tests of what all heads share. Every registered head joins,
# but for those that differ from another by a formula alone.
_NAMES = set(tl.heads.names()) - {"cosface", "sphereface", "lace-published"}
_NAMES |= {"lace on low-rank", "lace on one-vs-all", "lace on one-vs-one", "joint"}
PATHS = [case for case in CASES if case.name in _NAMES]


def make(case: Case, *, seed=0, width=WIDTH, classes=CLASSES, dtype=torch.float64, **place) -> Head:
    """A head whose parameters are away from zero and from the identity."""
    torch.manual_seed(seed)
    head = case.build(width, classes, dtype=dtype, **place)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return head


def batch(rows=16, *, seed=0, width=WIDTH, classes=CLASSES, dtype=torch.float64, ignored=None):
    """Correlated features off the origin; all classes occur, some pairs of half batches agree."""
    generator = torch.Generator().manual_seed(1000 + seed)
    mixing = torch.randn(
        width, width, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    centers = torch.randn(
        classes, width, generator=torch.Generator().manual_seed(8), dtype=torch.float64
    )
    draws = torch.randint(classes, (rows,), generator=generator)
    targets = torch.cat([torch.arange(classes), torch.minimum(draws, draws.flip(0))])[:rows]
    if rows >= 8:
        targets[rows // 2 + 1] = targets[1]
    noise = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    features = (0.7 * noise @ mixing + centers[targets] + 0.5).to(dtype)
    if ignored is not None:
        targets[2::7] = ignored
    return features, targets


def move(head: Head, steps=12, *, dtype=torch.float64, first=0, classes=CLASSES, ignored=-100):
    """Train for a few steps, leaving the head in training mode; returns the batches."""
    head.train()
    optimizer = torch.optim.SGD(head.parameters(), lr=0.02)
    history = []
    for step in range(first, first + steps):
        x, y = batch(
            seed=step, dtype=dtype, width=head.in_features, classes=classes, ignored=ignored
        )
        optimizer.zero_grad()
        head.loss(x, y).backward()
        optimizer.step()
        history.append((x, y))
    return history


def moved(case: Case, *, steps=12, dtype=torch.float64, **options) -> Head:
    """A head in evaluation mode after a few training steps."""
    head = make(case, dtype=dtype, **options)
    move(head, steps, dtype=dtype, classes=head.num_classes)
    return head.eval()


class Loss(torch.nn.Module):
    """A head that is called for its loss."""

    def __init__(self, head: Head):
        super().__init__()
        self.head = head

    def forward(self, features, targets):
        return self.head.loss(features, targets)


def has_state(head: Head) -> bool:
    """Whether training moves more than parameters."""
    return any(isinstance(part, (Running, AdaCos)) for part in head.modules())


def needs_targets(head: Head) -> bool:
    """Whether a background in it learns from labels alone."""
    return any(getattr(part, "needs_targets", False) for part in head.modules())


def is_classwise(head: Head) -> bool:
    return any(isinstance(part, ClasswiseBackground) for part in head.modules())


def is_cosine(head: Head) -> bool:
    return isinstance(head, CosineHead)


def where(predicate: Callable[[Head], bool]) -> list[Case]:
    return [case for case in CASES if predicate(make(case))]


def cases_where(predicate: Callable[[Head], bool]):
    return pytest.mark.parametrize("case", where(predicate), ids=repr)


def paths_where(predicate: Callable[[Head], bool]):
    return pytest.mark.parametrize("case", [c for c in where(predicate) if c in PATHS], ids=repr)


def crossed(name: str, values: Sequence, cases: Sequence[Case] = CASES):
    """Every case with the first value, and those of PATHS with the others too."""
    pairs = [(case, values[0]) for case in cases]
    pairs += [(case, value) for case in cases if case in PATHS for value in values[1:]]
    return pytest.mark.parametrize(
        ("case", name), pairs, ids=lambda value: getattr(value, "__name__", repr(value))
    )


every_case = pytest.mark.parametrize("case", CASES, ids=repr)
each_path = pytest.mark.parametrize("case", PATHS, ids=repr)


def gradients(loss: torch.Tensor, head: Head, features: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of the features and of every parameter, by name."""
    names, parameters = zip(*head.named_parameters(), strict=True)
    values = torch.autograd.grad(loss, [features, *parameters])
    return dict(zip(["features", *names], values, strict=True))
