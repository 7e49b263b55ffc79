import math

import pytest
import torch

from torchlace.evaluation import angle_scores, signature_angles


def test_angles_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    cosines = 2 * torch.rand(50, 6, generator=generator) - 1
    labels = torch.randint(6, (50,), generator=generator)
    truth, wrong = signature_angles(cosines, labels)
    for row, label, near, far in zip(cosines.tolist(), labels.tolist(), truth, wrong, strict=True):
        angles = [math.degrees(math.acos(value)) for value in row]
        assert near.item() == pytest.approx(angles.pop(label))
        assert far.item() == pytest.approx(min(angles))


def test_cosines_beyond_one_are_rounding():
    cosines = torch.tensor([[1.0000001, -1.0000001]])
    scores = angle_scores(cosines, torch.tensor([0]))
    assert scores["true"]["mean"] == 0
    assert scores["nearest_wrong"]["mean"] == 180
    assert scores["nearest_wrong"]["histogram"][179] == 1


def test_histograms_count_every_sample():
    generator = torch.Generator().manual_seed(0)
    cosines = 2 * torch.rand(500, 6, generator=generator) - 1
    labels = torch.randint(6, (500,), generator=generator)
    scores = angle_scores(cosines, labels)
    truth, wrong = signature_angles(cosines, labels)
    for name, angles in (("true", truth), ("nearest_wrong", wrong)):
        expected = torch.histc(angles, 180, 0, 180).long().tolist()
        assert scores[name]["histogram"] == expected
        assert scores[name]["mean"] == pytest.approx(angles.mean().item())
        assert scores[name]["std"] == pytest.approx(angles.std(correction=0).item())


def test_one_class_has_no_wrong_one():
    with pytest.raises(ValueError, match="two or more classes"):
        signature_angles(torch.ones(3, 1), torch.zeros(3).long())
