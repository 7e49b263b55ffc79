"""Bad input: an error that names the argument, what came and what was expected."""

import pytest
import torch
from backgrounds.cases import CASES, CLASSES, PLAIN_RUNNING, WIDTH, Case, batches, each

import torchlace as tl
from torchlace.backgrounds import (
    Learned,
    LearnedLowRank,
    LearnedOneVsAll,
    LowRank,
    LowRankTotal,
    OneVsAll,
    OneVsOne,
    Total,
    Within,
    create,
)

PLAIN = [Case(name, name) for name in tl.backgrounds.names()]
OPTIONS = [
    (Total, {"decay": 1.0}, "decay"),
    (Total, {"decay": -0.1}, "decay"),
    (Total, {"decay": "0.9"}, "decay"),
    (Total, {"shrinkage": 0.0}, "shrinkage"),
    (Total, {"shrinkage": 1.5}, "shrinkage"),
    (Total, {"shrinkage": "ledoit"}, "shrinkage.*ledoit-wolf"),
    (Total, {"refresh_every": 0}, "refresh_every"),
    (Total, {"refresh_every": 2.5}, "refresh_every"),
    (Total, {"method": "svd"}, "method"),
    (Total, {"ridge": 0.1}, "ridge"),
    (Within, {"num_classes": 3, "ridge": 0.0}, "ridge"),
    (Within, {"num_classes": 3, "method": "svd"}, "method"),
    (LowRank, {"num_classes": 3, "ridge": -1.0}, "ridge"),
    (Learned, {"form": "svd"}, "form"),
    (LowRank, {"num_classes": 3, "rank": 0}, "rank"),
    (LowRankTotal, {"shrinkage": 0}, "shrinkage"),
    (LearnedLowRank, {"rank": -1}, "rank"),
    (OneVsAll, {"num_classes": 3, "ridge": "ledoit-wolf"}, "ridge"),
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
def test_width_out_of_range(case):
    for width in (0, -3, 2.0, True):
        with pytest.raises((TypeError, ValueError), match="in_features"):
            create(case.name, width, CLASSES)


def test_unknown_name_lists_the_nearest():
    with pytest.raises(ValueError, match=r"unknown background 'witin'.*'within'"):
        create("witin", WIDTH, CLASSES)


@each([case for case in PLAIN if case.name in ("total", "learned", "low-rank-total")])
def test_whitening_features_of_the_wrong_shape(case):
    for shape in ((8, WIDTH + 1), (8, 1), (WIDTH,), (2, 3, WIDTH)):
        with pytest.raises(ValueError, match="features"):
            case.build()(torch.randn(shape))


@each(PLAIN_RUNNING)
def test_learning_from_features_of_the_wrong_shape(case):
    for shape in ((8, WIDTH + 1), (8, 1), (2, 3, WIDTH)):
        with pytest.raises(ValueError, match="features"):
            case.build().observe(torch.randn(shape), torch.zeros(shape[0], dtype=torch.long))


@each([case for case in PLAIN if case.build().needs_targets])
def test_targets_of_the_wrong_shape_or_type(case):
    features, _ = batches(1, dtype=torch.float32)[0]
    too_few, column = torch.zeros(3, dtype=torch.long), torch.zeros(16, 1, dtype=torch.long)
    for targets in (too_few, column, torch.zeros(16)):
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
