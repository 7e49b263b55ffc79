import torch
from heads.ddp_worker import SHARED, single, work
from torch.multiprocessing import spawn
from torch.testing import assert_close

WORLD = 2


def test_two_processes_do_what_one_does_with_the_joined_batch(tmp_path):
    spawn(work, args=(WORLD, str(tmp_path)), nprocs=WORLD)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD))
    wrong = {}
    for case in SHARED:
        try:
            check(single(case, WORLD), first[case.name], second[case.name])
        except AssertionError as error:
            wrong[case.name] = str(error)
    assert not wrong


def check(one, first, second):
    exact = {"rtol": 0, "atol": 0}
    assert_close(first["state"], second["state"], **exact)
    assert_close(first["gradients"], second["gradients"], **exact)
    means = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert_close(means, one["losses"], **close)
    assert_close(first["gradients"], one["gradients"], **close)
    assert_close(first["scores"], one["scores"], **close)
