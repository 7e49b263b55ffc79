"""On a GPU: spread, scaled, averaged and compiled training, interrupted and not."""

import math

import pytest
import torch
import torch.distributed as dist
from torch._dynamo.utils import counters

from torchlace.training import Silent, TrainConfig, train

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a CUDA device"
)
HEADS = {
    "lace": {"head": "lace"},
    "learned scale": {"head": "normface", "head_options": {"scale": "learned"}, "clip": 1.0},
}
COMMON = {"epochs": 2, "batch_size": 128, "lr": 3e-4, "schedule": "cosine", "device": DEVICE}


class Rows(Silent):
    """Remembers the epochs, and stops after one of them where asked to."""

    def __init__(self, stop=None):
        self.rows, self.stop = [], stop

    def epoch(self, row, epochs):
        self.rows.append(row)
        if row["epoch"] == self.stop:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No TF32; and what Lightning starts and sets for one test is gone after it."""
    for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
        monkeypatch.delenv(name)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        yield
    if dist.is_initialized():
        dist.destroy_process_group()


def losses(config, path):
    told = Rows()
    result = train(config, path, reporter=told)
    return [row[name] for row in told.rows for name in ("train_loss", "val_loss")], result


def stopped_and_resumed(config, path):
    first, second = Rows(stop=1), Rows()
    with pytest.raises(KeyboardInterrupt):
        train(config, path, reporter=first)
    result = train(config, path, reporter=second)
    rows = first.rows + second.rows
    assert [row["epoch"] for row in rows] == list(range(1, config.epochs + 1))
    return [row[name] for row in rows for name in ("train_loss", "val_loss")], result


@pytest.mark.parametrize("head", HEADS)
def test_a_spread_model_learns_as_a_whole_one_and_resumes(head, tmp_path):
    alone = TrainConfig(**COMMON, **HEADS[head], precision="32-true")
    spread = TrainConfig(**COMMON, **HEADS[head], precision="32-true", strategy="fsdp")
    expected, whole = losses(alone, tmp_path / "alone")
    found, result = losses(spread, tmp_path / "spread")
    assert found == pytest.approx(expected, rel=1e-3)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-3)
    found, result = stopped_and_resumed(spread, tmp_path / "cut")
    assert found == pytest.approx(expected, rel=1e-3)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-3)


def test_a_spread_run_goes_on_whole(tmp_path):
    alone = TrainConfig(**COMMON, precision="32-true")
    spread = TrainConfig(**COMMON, precision="32-true", strategy="fsdp")
    expected, _ = losses(alone, tmp_path / "alone")
    with pytest.raises(KeyboardInterrupt):
        train(spread, tmp_path / "cut", reporter=Rows(stop=1))
    # In another process it would be gone; its watchdog's calls would spoil a capture.
    dist.destroy_process_group()
    found, _ = losses(alone, tmp_path / "cut")
    assert found == pytest.approx(expected[2:], rel=1e-3)


@pytest.mark.skipif(DEVICE == "cpu", reason="there is no such precision on a CPU")
def test_half_precision_with_clipped_gradients_scales_its_loss_and_resumes(tmp_path):
    common = {**COMMON, "lr": 3e-3, "head": "softmax"}
    config = TrainConfig(**common, precision="16-mixed", clip=1.0)
    expected, _ = losses(config, tmp_path / "whole")
    assert all(map(math.isfinite, expected))
    assert expected[2] < 0.85 * expected[0]
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Rows(stop=1))
    scaler = torch.load(tmp_path / "cut" / "last.ckpt", weights_only=True)["scaler"]
    assert scaler["scale"] > 0
    # steps since a gradient overflowed, of 1293 // 128 in an epoch
    assert 0 < scaler["_growth_tracker"] <= 10
    found, result = losses(config, tmp_path / "cut")
    assert found == pytest.approx(expected[2:], rel=2e-2)
    after = torch.load(tmp_path / "cut" / "last.ckpt", weights_only=True)["scaler"]
    assert after["_growth_tracker"] > scaler["_growth_tracker"]
    assert math.isfinite(result["test_loss"])


@pytest.mark.parametrize("schedule", ["constant", "cosine", "one-cycle"])
def test_an_averaged_replayed_run_goes_on_as_one_that_never_stopped(schedule, tmp_path):
    common = {**COMMON, "schedule": schedule}
    config = TrainConfig(**common, precision="bf16-mixed", ema=0.9)
    expected, whole = losses(config, tmp_path / "whole")
    found, result = stopped_and_resumed(config, tmp_path / "cut")
    assert result["graph"] is whole["graph"] is (DEVICE == "cuda")
    assert found == pytest.approx(expected, rel=1e-2)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-2)


@pytest.mark.parametrize("head", HEADS)
def test_a_compiled_replayed_run_learns_as_an_eager_one_and_resumes(head, tmp_path):
    torch.compiler.reset()
    counters.clear()
    eager = TrainConfig(**COMMON, **HEADS[head], precision="32-true", graph=False)
    compiled = TrainConfig(**COMMON, **HEADS[head], precision="32-true", compile=True)
    expected, whole = losses(eager, tmp_path / "eager")
    assert not counters["stats"]
    found, result = losses(compiled, tmp_path / "compiled")
    assert counters["stats"]["unique_graphs"] == 1
    assert result["graph"] is (DEVICE == "cuda")
    assert found == pytest.approx(expected, rel=1e-3)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-3)
    found, result = stopped_and_resumed(compiled, tmp_path / "cut")
    assert found == pytest.approx(expected, rel=1e-3)
    assert result["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-3)


def test_a_compiled_background_in_the_backbone_is_captured(tmp_path):
    torch.compiler.reset()
    common = {**COMMON, "precision": "32-true", "background_norm": "layers.5"}
    expected, _ = losses(TrainConfig(**common, graph=False), tmp_path / "eager")
    found, result = losses(TrainConfig(**common, compile=True), tmp_path / "compiled")
    assert result["graph"] is (DEVICE == "cuda")
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("compiled", [False, True])
def test_norms_taken_anew_leave_the_replayed_step_alone(compiled, tmp_path):
    network = {"backbone": "shufflenet_v2_x0_5", "precision": "32-true", "compile": compiled}
    plain, _ = losses(TrainConfig(**COMMON, **network), tmp_path / "plain")
    config = TrainConfig(**COMMON, **network, norm_batches=3)
    anew, result = losses(config, tmp_path / "anew")
    assert result["graph"] is (DEVICE == "cuda")
    # Two runs of the same settings differ by some thousandths on a busy device.
    assert anew[::2] == pytest.approx(plain[::2], rel=5e-3)
    assert anew[1::2] != pytest.approx(plain[1::2], rel=1e-3)
    found, _ = stopped_and_resumed(config, tmp_path / "cut")
    assert found == pytest.approx(anew, rel=1e-2)
