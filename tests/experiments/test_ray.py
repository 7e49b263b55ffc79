"""A grid on a real Ray cluster of two machines, each with a disk of its own."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from experiments.grids import GRID

from torchlace.experiments import State, grid_status, load_experiment, run_grid, unique_tasks
from torchlace.experiments.ray import RayEngine
from torchlace.training import Run

ray = pytest.importorskip("ray")
PATIENCE = 120


def wait_for(condition):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def trainings(disk):
    """The cells that a machine has begun."""
    return {path.parent.name for path in Path(disk).glob("torchlace-*/*/config.yaml")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two machines; `TMPDIR` is the disk of each."""
    from ray.cluster_utils import Cluster

    os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0")
    quick = {"health_check_period_ms": 200, "health_check_failure_threshold": 3}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": quick})
    disks = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    cluster.disks = disks
    cluster.machines = [
        cluster.add_node(num_cpus=1, env_vars={"TMPDIR": str(disk), "OMP_NUM_THREADS": "1"})
        for disk in disks
    ]
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def grid(folder, **settings):
    (folder / "mine.yaml").write_text(GRID)
    return unique_tasks(load_experiment(folder / "mine.yaml").select(**settings).cells())


def test_ctrl_c_brings_the_checkpoints_home_and_the_same_grid_goes_on(cluster, tmp_path):
    tasks = grid(tmp_path, epochs=120, patience=120, seeds=1)

    def stop():
        wait_for(lambda: all(trainings(disk) for disk in cluster.disks))
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop, daemon=True).start()
    outcome = run_grid(tasks, tmp_path, RayEngine(1, "cpu", shared=False))
    assert outcome.interrupted
    assert outcome.failed == {}
    assert set(grid_status(tasks, tmp_path).states.values()) == {State.CUT}
    reached = {}
    for task in tasks:
        run = Run(tmp_path / task.name)
        assert run.checkpoint_path.exists()
        reached[task.name] = len(run.metrics_path.read_text().splitlines()) - 1
        assert 1 <= reached[task.name] < 120

    # The machines forget; the checkpoints travel from here.
    for disk in cluster.disks:
        subprocess.run(["rm", "-r", *Path(disk).glob("torchlace-*")], check=True)
    again = run_grid(tasks, tmp_path, RayEngine(1, "cpu", shared=False))
    assert sorted(again.ran) == sorted(reached)
    for name, epochs in reached.items():
        assert f"after epoch {epochs}" in (tmp_path / name / "log.txt").read_text()
        assert Run(tmp_path / name).result()["epochs"] == 120
        assert not Run(tmp_path / name).checkpoint_path.exists()


def test_a_machine_is_lost_and_nothing_else(cluster, tmp_path):
    tasks = grid(tmp_path, epochs=4, seeds=3)
    lost, written = {}, {}

    def kill():
        """Once a cell is finished, and while the second machine is at work on another."""
        wait_for(lambda: list(tmp_path.glob("*/result.json")) and trainings(cluster.disks[1]))
        lost["at work"] = trainings(cluster.disks[1])
        cluster.remove_node(cluster.machines[1], allow_graceful=False)
        for path in tmp_path.glob("*/result.json"):
            written[path] = path.stat().st_mtime_ns

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    outcome = run_grid(tasks, tmp_path, RayEngine(1, "cpu", shared=False))
    killing.join()
    assert sorted(outcome.ran) == sorted(task.name for task in tasks)
    assert outcome.failed == {}
    assert lost["at work"]
    assert written
    for path, when in written.items():
        assert path.stat().st_mtime_ns == when
    for task in tasks:
        run = Run(tmp_path / task.name)
        assert run.weights_path.exists()
        assert run.config().differences(task.config) == {}
        assert json.loads(run.result_path.read_text())["epochs"] == 4
    assert run_grid(tasks, tmp_path, RayEngine(1, "cpu")).ran == []


def test_machines_that_see_the_same_disk_work_in_place(cluster, tmp_path):
    (task, *_) = grid(tmp_path)
    (tmp_path / "runs").mkdir()
    before = trainings(cluster.disks[0])
    outcome = run_grid([task], tmp_path / "runs", RayEngine(1, "cpu"))
    assert outcome.ran == [task.name]
    assert trainings(cluster.disks[0]) == before
    assert list((tmp_path / "runs").glob(".grid-*")) == []
    assert (tmp_path / "runs" / task.name / ".lock").exists()


def test_without_ray_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'torchlace\[ray\]'"), RayEngine():
        pass
