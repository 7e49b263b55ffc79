"""What a step computes: nothing that is switched off, and nothing that makes a device wait."""

import pytest
import torch
from backgrounds.cases import RUNNING, batches, each
from torch.utils._python_dispatch import TorchDispatchMode

import torchlace as tl
from torchlace.backgrounds import refreshing

WIDTH, CLASSES, ROWS, RANK = 23, 3, 12, 7


class Watch(TorchDispatchMode):
    """The names of all operations, and the shapes of all that they compute."""

    def __init__(self):
        super().__init__()
        self.seen, self.names = set(), set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.names.add(function.overloadpacket.__name__)
        for tensor in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(tensor, torch.Tensor):
                self.seen.add(tuple(tensor.shape[-2:]))
        return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("within", {}),
        ("total", {}),
        ("total", {"shrinkage": "ledoit-wolf"}),
        ("low-rank", {"rank": RANK}),
        ("low-rank-total", {"rank": RANK}),
        ("one-vs-all", {}),
        ("one-vs-one", {}),
    ],
)
def test_no_covariance_no_work_on_matrices(name, options):
    features, targets = torch.randn(ROWS, WIDTH), torch.arange(ROWS) % CLASSES
    matrices = {(WIDTH, WIDTH), (WIDTH, RANK)}
    for covariance in (True, False):
        background = tl.backgrounds.create(
            name, WIDTH, CLASSES, covariance=covariance, refresh_every=2, **options
        )
        with Watch() as watch:
            for _ in range(3):
                background.observe(features, targets)
            background.refresh()
        assert bool(watch.seen & matrices) == covariance
        assert background.steps == 3


@each(RUNNING)
def test_no_step_waits_for_a_number(case):
    background = case.build()
    features, targets = batches(1, dtype=torch.float32)[0]
    targets[::3] = -1
    for refresh in (False, True):
        with refreshing(background, refresh), Watch() as watch:
            background.observe(features, targets)
        assert not watch.names & {"_local_scalar_dense", "nonzero", "masked_select", "item"}
