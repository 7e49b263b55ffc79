"""Two processes learn together what one learns from the joined batch."""

import torch
from backgrounds.cases import RUNNING
from backgrounds.ranks import run, work
from torch.testing import assert_close


def test_two_ranks_learn_as_one(tmp_path):
    torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    alone = {case.label: run(case) for case in RUNNING}
    for ours, theirs in zip(first, second, strict=True):
        assert ours.keys() == theirs.keys()
        for label, values in ours.items():
            for name, value in values.items():
                assert torch.equal(value, theirs[label][name]), (label, name)
            for name in ("read_mean", "read_precision"):
                assert_close(values[name], alone[label][name], msg=f"{label}: {name} differs")
