"""The state of a model spread over two processes, put together and taken apart."""

import multiprocessing
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing import assert_close

from torchlace.models import Classifier
from torchlace.training.checkpoint import shard, spread_model, spread_optimizer, whole


def model():
    torch.manual_seed(0)
    return Classifier(
        "small-cnn", "normface", 3, head_options={"scale": "learned"}, channels=1, stem="small"
    )


def learn(model, optimizer):
    torch.manual_seed(1)
    model.loss(torch.randn(8, 1, 8, 8), torch.arange(8) % 3).backward()
    optimizer.step()


def in_two_processes(function, folder):
    context = multiprocessing.get_context("forkserver")
    started = [
        context.Process(target=be_rank, args=(function, rank, folder / "meet")) for rank in range(2)
    ]
    for each in started:
        each.start()
    for each in started:
        each.join(120)
    assert [each.exitcode for each in started] == [0, 0]


def be_rank(function, rank, meeting):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=30),
    )
    spread = shard(model(), init_device_mesh("cpu", (2,), mesh_dim_names=("data_parallel",)))
    optimizer = torch.optim.Adam(spread.parameters())
    function(rank, spread, optimizer)
    dist.barrier()
    dist.destroy_process_group()


def put_together(rank, spread, optimizer):
    learn(spread, optimizer)
    plain, alive = DTensor.full_tensor, []

    def one_at_a_time(tensor):
        if rank == 1:
            assert not any(each() is not None for each in alive)
        full = plain(tensor)
        alive.append(weakref.ref(full))
        return full

    DTensor.full_tensor = one_at_a_time
    states = [whole(part.state_dict(), keep=rank == 0) for part in (spread, optimizer)]
    assert alive
    if rank == 1:
        assert set(states[0].values()) == {None}
        assert states[1]["state"][0]["exp_avg"] is None
        return
    alone = model()
    by_one = torch.optim.Adam(alone.parameters())
    learn(alone, by_one)
    assert_close(states[0], dict(alone.state_dict()))
    assert_close(states[1]["state"], by_one.state_dict()["state"])
    model().load_state_dict(states[0])


def take_apart(rank, spread, optimizer):
    learn(spread, optimizer)
    alone = model()
    by_one = torch.optim.Adam(alone.parameters())
    for _ in range(2):
        learn(alone, by_one)
    # One process after the other: nobody may wait for anybody.
    for turn in range(2):
        if rank == turn:
            weights = spread_model(alone.state_dict(), spread)
            moments = spread_optimizer(by_one.state_dict(), optimizer)
            for part in (*weights.values(), moments["state"][0]["exp_avg"]):
                if isinstance(part, DTensor):
                    local = part.to_local()
                    assert local.untyped_storage().nbytes() == local.nbytes
            spread.load_state_dict(weights)
            optimizer.load_state_dict(moments)
        dist.barrier()
    assert_close(whole(spread.state_dict()), dict(alone.state_dict()), rtol=0, atol=0)
    state = whole(optimizer.state_dict())["state"]
    assert_close(state, by_one.state_dict()["state"], rtol=0, atol=0)


def test_it_is_put_together_a_tensor_at_a_time_where_it_is_written(tmp_path):
    in_two_processes(put_together, tmp_path)


def test_every_process_takes_its_part_alone(tmp_path):
    in_two_processes(take_apart, tmp_path)
