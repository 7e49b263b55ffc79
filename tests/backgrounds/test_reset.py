"""``reset_parameters`` gives a background as fresh as a constructed one, also from empty memory."""

import torch
from backgrounds.cases import CASES, WIDTH, batches, each
from torch.testing import assert_close

import torchlace as tl

SAME = {"rtol": 0, "atol": 0}


def emptied(build):
    with torch.device("meta"):
        module = build()
    module.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.fill_(torch.nan)
    return module


@each(CASES)
def test_out_of_empty_memory(case):
    background, fresh = emptied(case.build), case.build()
    torch.manual_seed(0)
    background.reset_parameters()
    assert_close(dict(background.named_buffers()), dict(fresh.named_buffers()), **SAME)
    assert_close(dict(background.state_dict()), dict(fresh.state_dict()), **SAME)


@each([case for case in CASES if not case.options])
def test_after_training(case):
    background, fresh = case.build(), case.build()
    for features, targets in batches(3, dtype=torch.float32):
        background.observe(features, targets)
    with torch.no_grad():
        for parameter in background.parameters():
            parameter.add_(1)
    torch.manual_seed(0)
    background.reset_parameters()
    assert_close(dict(background.state_dict()), dict(fresh.state_dict()), **SAME)


def test_the_layer():
    layer, fresh = emptied(lambda: tl.BackgroundNorm(WIDTH)), tl.BackgroundNorm(WIDTH)
    layer.reset_parameters()
    assert_close(dict(layer.state_dict()), dict(fresh.state_dict()), **SAME)
    plain = tl.BackgroundNorm(WIDTH, affine=False)
    plain(torch.randn(8, WIDTH))
    plain.reset_parameters()
    assert plain.background.steps == 0
