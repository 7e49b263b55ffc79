"""On a GPU: every head and background against the CPU, and captured steps against eager ones."""

import copy

import pytest
import torch
from backgrounds.cases import CASES as BACKGROUNDS
from backgrounds.cases import RUNNING, batches, each
from heads.cases import CASES as HEADS
from heads.cases import CLASSES, WIDTH
from torch.testing import assert_close

import torchlace as tl
from torchlace.training import RunError, Silent, TrainConfig, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def _exact():
    """No TF32, so that CPU and GPU differ by rounding alone."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, allow_tf32=False):
        yield


def data(seed, rows=32):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64)
    targets = torch.randint(CLASSES, (rows,), generator=generator)
    targets[:CLASSES] = torch.arange(CLASSES)
    return features + targets[:, None], targets


def run(module, device, steps=12):
    """Losses, gradients of the last step, and state after a few training steps."""
    module = module.to(device)
    losses = []
    for step in range(steps):
        features, targets = data(step)
        features = features.to(device).requires_grad_()
        module.zero_grad()
        loss = module.loss(features, targets.to(device))
        loss.backward()
        losses.append(loss.detach().cpu())
    gradients = [features.grad, *(p.grad for p in module.parameters())]
    state = {k: v for k, v in module.state_dict().items() if torch.is_tensor(v)}
    return losses, [g.cpu() for g in gradients], {k: v.cpu() for k, v in state.items()}


@pytest.mark.parametrize("case", HEADS, ids=repr)
def test_heads_compute_what_the_cpu_computes(case):
    torch.manual_seed(0)
    head = case.build(WIDTH, CLASSES, dtype=torch.float64)
    ours, theirs = run(copy.deepcopy(head), "cuda"), run(head, "cpu")
    assert_close(ours, theirs, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", HEADS, ids=repr)
def test_heads_stay_in_fp32_under_autocast(case, dtype):
    torch.manual_seed(0)
    head = case.build(WIDTH, CLASSES).cuda()
    features, targets = (part.cuda() for part in data(0))
    plain = copy.deepcopy(head).loss(features.float(), targets)
    with torch.autocast("cuda", dtype):
        loss = head.loss(features.float(), targets)
    assert loss.dtype == torch.float32
    assert_close(loss, plain)


@each(BACKGROUNDS)
def test_backgrounds_compute_what_the_cpu_computes(case):
    background = case.build(dtype=torch.float64)
    other = copy.deepcopy(background).cuda()
    for features, targets in batches(12):
        background.observe(features, targets)
        other.observe(features.cuda(), targets.cuda())
    assert_close(other.precision.cpu(), background.precision, rtol=1e-6, atol=1e-8)
    assert_close(other.mean.cpu(), background.mean)


@each(RUNNING)
def test_a_captured_background_moves_as_an_eager_one(case):
    """25 steps through two refreshes and more, without a host synchronisation inside."""
    eager = case.build(dtype=torch.float64, refresh_every=4).cuda()
    background = copy.deepcopy(eager)
    rows = [(f.cuda(), t.cuda()) for f, t in batches(25)]
    features, targets = (part.clone() for part in rows[0])
    kept = copy.deepcopy(background.state_dict())
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        background.observe(features, targets)
    torch.cuda.current_stream().wait_stream(side)
    graphs = {}
    for refresh in (True, False):
        graphs[refresh] = torch.cuda.CUDAGraph()
        with (
            tl.backgrounds.refreshing(background, refresh),
            torch.cuda.graph(graphs[refresh]),
        ):
            background.observe(features, targets)
    with torch.no_grad():
        for name, value in background.named_buffers():
            value.copy_(kept[name])
    background.set_extra_state(kept["_extra_state"])
    for step, (new, labels) in enumerate(rows):
        eager.observe(new, labels)
        features.copy_(new)
        targets.copy_(labels)
        graphs[background.steps % 4 == 0].replay()
        tl.backgrounds.advance(background, 1)
        if step in (3, 4, 5, 24):
            assert_close(background.precision, eager.precision, rtol=1e-7, atol=1e-9)
            assert_close(background.mean, eager.mean)
    assert background.steps == eager.steps == 25


class Rows(Silent):
    def __init__(self):
        self.rows = []

    def epoch(self, row, epochs):
        self.rows.append(row)


SETTINGS = {
    "softmax": {},
    "lace": {"clip": 1.0, "ema": 0.9, "schedule": "cosine"},
    "adacos": {"optimizer": "sgd", "lr": 0.01},
    "lace-learned": {"optimizer": "adamw", "class_weights": "balanced"},
    "center": {"label_smoothing": 0.1},
    "normface": {"optimizer": "muon", "weight_decay": 0.1, "schedule": "one-cycle"},
}


@pytest.mark.parametrize("head", SETTINGS)
def test_replay_gives_the_losses_of_eager_steps(head, tmp_path):
    told = {}
    for graph in (True, False):
        config = TrainConfig(
            head=head,
            epochs=3,
            batch_size=64,
            precision="32-true",
            device="cuda",
            graph=graph,
            **{"lr": 1e-4, **SETTINGS[head]},
        )
        told[graph] = Rows()
        result = train(config, tmp_path / str(graph), reporter=told[graph])
        assert result["graph"] is graph
    for name in ("train_loss", "val_loss", "lr"):
        replayed, eager = ([row[name] for row in told[graph].rows] for graph in (True, False))
        assert replayed == pytest.approx(eager, rel=2e-4), name


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_captured_run_goes_on_as_one_that_never_stopped(optimizer, tmp_path):
    class Stop(Silent):
        def epoch(self, row, epochs):
            if row["epoch"] == 2:
                raise KeyboardInterrupt

    alone = {"precision": "32-true", "device": "cuda", "optimizer": optimizer}
    config = TrainConfig(epochs=4, batch_size=64, lr=1e-4, **alone)
    whole = train(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "cut", reporter=Stop())
    again = train(config, tmp_path / "cut")
    assert again["epochs"] == whole["epochs"] == 4
    assert again["test_loss"] == pytest.approx(whole["test_loss"], rel=2e-4)


def test_a_capture_that_fails_names_the_operation(tmp_path, monkeypatch):
    from torchlace.heads import Softmax

    honest = Softmax._loss

    def peeking(self, features, targets, options):
        assert features.sum().item() == features.sum().item()
        return honest(self, features, targets, options)

    monkeypatch.setattr(Softmax, "_loss", peeking)
    with pytest.raises(RunError, match=r"(?s)at aten\._local_scalar_dense.*graph=False"):
        train(TrainConfig(head="softmax", epochs=1, device="cuda"), tmp_path)
