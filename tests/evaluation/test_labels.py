"""What the figures of logits, probabilities and cosines ask of labels."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlace.evaluation import (
    angle_scores,
    brier_score,
    class_accuracies,
    classification_scores,
    confusion_matrix,
    reliability_bins,
)
from torchlace.evaluation.scores import distinct_names

ROWS = torch.softmax(torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), dim=1)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])
FIGURES = [
    angle_scores,
    brier_score,
    class_accuracies,
    classification_scores,
    confusion_matrix,
    reliability_bins,
]


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (ROWS, LABELS[:1], r"shape \(6,\)"),
        (ROWS, LABELS[:, None], r"shape \(6,\)"),
        (ROWS, LABELS + 1, r"lie in 0\.\.2, a column each, got \[3\]"),
        (ROWS, LABELS - 1, r"lie in 0\.\.2, a column each, got \[-1\]"),
        (ROWS[:0], LABELS[:0], "one or more samples"),
    ],
)
def test_labels_that_do_not_fit_are_not_made_to(figure, rows, labels, message):
    with pytest.raises(ValueError, match=message):
        figure(rows, labels)


@pytest.mark.parametrize("figure", FIGURES)
def test_labels_may_be_of_any_integer_type(figure):
    rows = torch.cat([ROWS.repeat(1, 33), ROWS], dim=1)  # 102 classes: 101 * 102 is beyond a byte
    labels = LABELS * 50
    assert str(figure(rows, labels.to(torch.uint8))) == str(figure(rows, labels))


def test_of_equal_logits_the_first_decides_in_every_figure():
    logits = torch.zeros(40, 10)
    labels = torch.arange(40) % 10
    scores = classification_scores(logits, labels)
    assert scores["accuracy"] == 10
    assert confusion_matrix(logits, labels).diagonal().tolist() == [4] + 9 * [0]
    assert class_accuracies(logits, labels) == [100.0] + 9 * [0.0]
    assert scores["top5_accuracy"] >= scores["accuracy"]


def test_no_bins_are_an_error():
    with pytest.raises(ValueError, match="bins must be at least 1"):
        reliability_bins(ROWS, LABELS, bins=0)


@given(st.lists(st.sampled_from(["a", "b", "a (0)", "a (1)", "a (0) (0)", ""]), max_size=8))
def test_names_become_distinct_and_stay_where_they_are(names):
    found = distinct_names(names)
    assert len(set(found)) == len(found) == len(names)
    for name, new in zip(names, found, strict=True):
        assert new.startswith(name)
        assert new == name or sum(other in new for other in names) > 1
