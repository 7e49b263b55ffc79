"""Bad input: an error that names the argument, what came and what was expected."""

import pytest
import torch
from backgrounds.cases import CASES, CLASSES, WIDTH, Case, batches, each

import torchlace as tl
from torchlace.backgrounds import (
    Estimated,
    Learned,
    LearnedLowRank,
    LearnedOneVsAll,
    LowRank,
    OneVsAll,
    OneVsOne,
    create,
)

PLAIN = [Case(name, name) for name in tl.backgrounds.names()]
OPTIONS = [
    (Estimated, {"decay": 1.0}, "decay"),
    (Estimated, {"decay": -0.1}, "decay"),
    (Estimated, {"decay": "0.9"}, "decay"),
    (Estimated, {"shrinkage": 0.0}, "shrinkage"),
    (Estimated, {"shrinkage": 1.5}, "shrinkage"),
    (Estimated, {"shrinkage": "ledoit"}, "shrinkage.*ledoit-wolf"),
    (Estimated, {"refresh_every": 0}, "refresh_every"),
    (Estimated, {"refresh_every": 2.5}, "refresh_every"),
    (Estimated, {"method": "svd"}, "method"),
    (Estimated, {"samples": "target"}, "samples.*nontarget"),
    (Estimated, {"samples": "nontarget"}, "num_classes"),
    (
        Estimated,
        {"samples": "nontarget", "num_classes": 1},
        "num_classes must be at least 2, got 1",
    ),
    (Estimated, {"dimensions": 0}, "dimensions"),
    (Estimated, {"dimensions": 2.5}, "dimensions"),
    (Estimated, {"dimensions": "class"}, "dimensions 'class'.*'classes'"),
    (Estimated, {"dimensions": "classes"}, 'dimensions="classes" needs num_classes'),
    (
        Estimated,
        {"dimensions": 2, "shrinkage": "ledoit-wolf"},
        "dimensions=2 and shrinkage='ledoit-wolf' each set the shrinkage",
    ),
    (
        Estimated,
        {"dimensions": 2, "cohesion": 0.5, "num_classes": 3},
        "dimensions=2 and cohesion=0.5 each set the shrinkage: keep one",
    ),
    (Estimated, {"cohesion": 0.5}, "cohesion=0.5 needs num_classes"),
    (Estimated, {"cohesion": 1, "num_classes": 3}, r"cohesion .*\(0, 1\).*1"),
    (Estimated, {"cohesion": "high", "num_classes": 3}, "cohesion.*'high'"),
    (Learned, {"form": "svd"}, "form"),
    (LowRank, {"rank": 0}, "rank"),
    (LowRank, {"shrinkage": 0}, "shrinkage"),
    (LearnedLowRank, {"rank": -1}, "rank"),
    (OneVsAll, {"num_classes": 3, "shrinkage": "ledoit-wolf"}, "shrinkage"),
    (OneVsAll, {"num_classes": 1}, "num_classes must be at least 2, got 1"),
    (OneVsOne, {"num_classes": 1}, "num_classes must be at least 2, got 1"),
    (LearnedOneVsAll, {"num_classes": 0}, "num_classes must be at least 2, got 0"),
    (OneVsOne, {"num_classes": 3, "method": "qr"}, "method"),
    (LearnedOneVsAll, {"num_classes": 3, "rank": 1.5}, "rank"),
]


@pytest.mark.parametrize(("kind", "options", "named"), OPTIONS)
def test_options_out_of_range(kind, options, named):
    with pytest.raises((TypeError, ValueError), match=named):
        kind(WIDTH, **options)


@each(PLAIN)
@pytest.mark.parametrize("width", [0, -3, 2.0, True])
def test_width_out_of_range(case, width):
    with pytest.raises((TypeError, ValueError), match="in_features"):
        create(case.name, width, CLASSES)


def test_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"unknown background 'estimate'.*'estimated'"):
        create("estimate", WIDTH, CLASSES)


@pytest.mark.parametrize("shape", [(8, WIDTH + 1), (8, 1), (WIDTH,), (2, 3, WIDTH)], ids=str)
@each([case for case in PLAIN if case.name in ("estimated", "learned", "low-rank")])
def test_whitening_features_of_the_wrong_shape(case, shape):
    with pytest.raises(ValueError, match="features"):
        case.build()(torch.randn(shape))


@pytest.mark.parametrize("shape", [(8, WIDTH + 1), (8, 1), (2, 3, WIDTH)], ids=str)
@each([case for case in PLAIN if isinstance(case.build(), tl.backgrounds.Running)])
def test_learning_from_features_of_the_wrong_shape(case, shape):
    with pytest.raises(ValueError, match="features"):
        case.build().observe(torch.randn(shape), torch.zeros(shape[0], dtype=torch.long))


@pytest.mark.parametrize(
    "targets",
    [torch.zeros(3, dtype=torch.long), torch.zeros(16, 1, dtype=torch.long), torch.zeros(16)],
    ids=["too-few", "a-column", "floats"],
)
@each([case for case in PLAIN if case.build().needs_targets])
def test_targets_of_the_wrong_shape_or_type(case, targets):
    features, _ = batches(1, dtype=torch.float32)[0]
    with pytest.raises((TypeError, ValueError), match="targets"):
        case.build().observe(features, targets)


@pytest.mark.parametrize("kind", [OneVsOne, tl.backgrounds.LearnedOneVsOne, LearnedOneVsAll])
def test_classwise_backgrounds_do_not_whiten_as_one(kind):
    background = kind(WIDTH, CLASSES).eval()
    with pytest.raises((ValueError, NotImplementedError), match="class"):
        background.whiten(torch.randn(CLASSES, WIDTH))


@each(CASES)
def test_repr_shows_what_is_off(case):
    text = repr(case.build())
    assert str(WIDTH) in text
    for part in ("mean", "covariance"):
        assert (f"{part}=False" in text) == (case.options.get(part) is False)
