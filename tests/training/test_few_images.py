"""Training on some of the images only."""

import pytest
import torch

from torchlace.training import RunError, TrainConfig, loop, train


@pytest.fixture
def inputs(monkeypatch):
    """The inputs of the runs that were trained."""
    made, whole = [], loop.Inputs

    def remember(*arguments):
        made.append(whole(*arguments))
        return made[-1]

    monkeypatch.setattr(loop, "Inputs", remember)
    return made


def test_so_many_by_class_others_by_another_seed_and_the_same_ones_held_out(inputs, tmp_path):
    train(TrainConfig(epochs=1), tmp_path / "all")
    result = train(TrainConfig(epochs=1, images=100, batch_size=20), tmp_path / "few")
    train(TrainConfig(epochs=1, images=100, seed=1), tmp_path / "others")
    everything, few, others = inputs
    assert torch.equal(few.held.labels, everything.held.labels)
    assert len(few.fit) == 100
    assert few.steps == 5
    counts = torch.bincount(few.fit.labels)
    assert len(counts) == 10
    assert counts.min() >= 9
    assert result["test_images"] == 359
    assert len({*few.fit.indices.tolist()} & {*others.fit.indices.tolist()}) < 50


@pytest.mark.parametrize("images", [9, 100_000])
def test_too_few_or_too_many_are_an_error(images, tmp_path):
    with pytest.raises(RunError, match=f"images={images} must be below the 1,294 training images"):
        train(TrainConfig(images=images), tmp_path / "run")
    assert not (tmp_path / "run").exists()
