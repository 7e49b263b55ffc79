"""Runs that go on, or are looked at, on another machine than where they began."""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from training.stopping import StopAfter, StoppedError

from torchlace.runs import Run, load_run
from torchlace.training import RunError, Silent, TrainConfig, train
from torchlace.training.checkpoint import checkpoint_state, load_checkpoint, write_checkpoint
from torchlace.training.stopping import Progress


def progress(epochs):
    reached = Progress(seconds=1.0)
    for epoch in range(1, epochs + 1):
        reached.add({"epoch": epoch, "val_loss": 1 / epoch, "val_accuracy": 50.0 + epoch})
    return reached


def save_checkpoint(run, parts, epochs=1):
    write_checkpoint(run, checkpoint_state(parts, vars(progress(epochs))))


def optimizer(lr=1e-3, **options):
    model = torch.nn.Linear(2, 2)
    return torch.optim.Adam(model.parameters(), lr=lr, **options)


def test_how_the_optimizer_computes_is_not_taken_from_the_checkpoint(tmp_path):
    run = Run(tmp_path)
    graph = optimizer(torch.tensor(0.5), capturable=True)
    save_checkpoint(run, {"optimizer": graph})
    plain = optimizer(1e-3)
    load_checkpoint(run, {"optimizer": plain})
    assert plain.param_groups[0]["capturable"] is False
    assert plain.param_groups[0]["lr"] == 0.5
    assert isinstance(plain.param_groups[0]["lr"], float)

    save_checkpoint(run, {"optimizer": plain})
    back = optimizer(torch.tensor(1e-3), capturable=True)
    load_checkpoint(run, {"optimizer": back})
    assert back.param_groups[0]["capturable"] is True
    assert isinstance(back.param_groups[0]["lr"], torch.Tensor)
    assert back.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_what_the_optimizer_keeps_follows_the_layout_of_the_weights_here(kind, tmp_path):
    """As on a GPU, where channels come last, after a CPU or FSDP, where they don't."""
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    images, models, optimizers = torch.randn(2, 3, 8, 8), [], []
    for layout in (torch.contiguous_format, torch.channels_last):
        torch.manual_seed(0)
        models.append(torch.nn.Conv2d(3, 4, 3).to(memory_format=layout))
        optimizers.append(kind(models[-1].parameters(), lr=0.1, fused=True, **options))

    def step(number):
        optimizers[number].zero_grad()
        models[number](images).square().mean().backward()
        optimizers[number].step()

    step(0)
    run = Run(tmp_path)
    save_checkpoint(run, {"model": models[0], "optimizer": optimizers[0]})
    load_checkpoint(run, {"model": models[1], "optimizer": optimizers[1]})
    for parameter, kept in optimizers[1].state.items():
        tensors = [each for each in kept.values() if each.shape == parameter.shape]
        assert tensors
        assert all(each.stride() == parameter.stride() for each in tensors)
    step(0)
    step(1)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_how_the_loss_is_scaled_goes_on_unless_the_precision_is_new(tmp_path):
    run = Run(tmp_path)
    save_checkpoint(run, {"scaler": torch.amp.GradScaler("cpu", init_scale=8.0)}, epochs=1)
    resumed = torch.amp.GradScaler("cpu")
    assert load_checkpoint(run, {"scaler": resumed}) == progress(1)
    assert resumed.get_scale() == 8.0
    save_checkpoint(run, {}, epochs=2)
    assert load_checkpoint(run, {"scaler": resumed}) == progress(2)


def test_strategies_that_can_not_be_are_refused(tmp_path):
    with pytest.raises(RunError, match="use fsdp"):
        train(TrainConfig(strategy="deepspeed"), tmp_path)
    with pytest.raises(RunError, match='strategy="ddp"'):
        train(TrainConfig(strategy="fsdp", ema=0.9, device="cpu"), tmp_path)


def test_settings_that_can_not_be_leave_the_old_run_alone(tmp_path, monkeypatch):
    train(TrainConfig(epochs=1, head="softmax"), tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    for wrong in ({"head": "nonsense"}, {"precision": "bf16-true", "ema": 0.9}):
        with pytest.raises((ValueError, RunError)):
            train(TrainConfig(epochs=1, **wrong), tmp_path, overwrite=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match="2 processes were started for one run"):
        train(TrainConfig(epochs=1), tmp_path, overwrite=True)
    assert before == {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_a_run_has_one_process(tmp_path):
    class Again(Silent):
        said = None

        def epoch(self, row, epochs):
            with pytest.raises(RunError, match="another process trains") as error:
                train(TrainConfig(epochs=2), tmp_path)
            self.said = str(error.value)

    again = Again()
    train(TrainConfig(epochs=2), tmp_path, reporter=again)
    assert again.said


def test_the_average_counts_the_steps_of_the_model(tmp_path):
    train(TrainConfig(epochs=2, ema=0.9, batch_size=64), tmp_path)
    steps = load_file(tmp_path / "best.safetensors")["head.background._extra_state"]
    assert int(steps) in (20, 40)


def test_pretrained_weights_are_fetched_once(tmp_path, monkeypatch):
    asked = []
    import torchlace.training.model as assembly
    from torchlace.runs import make_classifier

    def remember(config, *arguments):
        asked.append(config.pretrained)
        return make_classifier(dataclasses.replace(config, pretrained=False), *arguments)

    monkeypatch.setattr(assembly, "make_classifier", remember)
    config = TrainConfig(epochs=2, pretrained=True)
    with pytest.raises(StoppedError):
        train(config, tmp_path, reporter=StopAfter(1))
    train(config, tmp_path)
    assert asked == [True, False]
    load_run(tmp_path, "cpu")
