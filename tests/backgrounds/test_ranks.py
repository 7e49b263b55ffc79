"""Two processes learn together what one learns from the joined batch."""

import torch
from backgrounds.cases import DECAY, PLAIN_RUNNING, RUNNING
from backgrounds.ranks import BAD_STEP, run, stream, work
from backgrounds.reference import expected, refreshed
from torch.testing import assert_close


def naive(case, decay):
    """The running average over every sample that counts, one at a time."""
    history = [(x[y >= 0], y[y >= 0]) for x, y in stream()]
    history[BAD_STEP] = (history[BAD_STEP][0][:0], history[BAD_STEP][1][:0])
    background = case.build(decay=decay, refresh_every=4)
    return expected(background, refreshed(history, background.refresh_every))


def test_two_ranks_learn_as_one(tmp_path):
    torch.multiprocessing.spawn(work, args=(str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    alone = {case.label: run(case) for case in RUNNING}
    automatic = {case.label: run(case, decay="auto") for case in PLAIN_RUNNING}
    plain = next(case for case in RUNNING if case.label == "total")
    singles = [(alone, DECAY), (alone, DECAY), (automatic, "auto")]
    for ours, theirs, (alone, decay) in zip(first, second, singles, strict=True):
        mean, precision = naive(plain, decay)
        assert ours.keys() == theirs.keys()
        for label, values in ours.items():
            for name, value in values.items():
                assert torch.equal(value, theirs[label][name]), (label, name)
            for name in ("read_mean", "read_precision"):
                assert_close(values[name], alone[label][name], msg=f"{label}: {name} differs")
        assert_close(ours["total"]["read_mean"], mean)
        assert_close(ours["total"]["read_precision"], precision)
