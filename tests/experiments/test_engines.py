import os
import stat
import subprocess
import sys

import pytest

from torchlace.experiments import engines, make_engine
from torchlace.experiments.cells import Task
from torchlace.experiments.engines import LocalEngine
from torchlace.training import TrainConfig

CONTROL = """#!/bin/sh
read_question() { read question; }
if [ "$1" = "-d" ]; then
  echo "start $CUDA_MPS_PIPE_DIRECTORY ${CUDA_VISIBLE_DEVICES-all}" >> "$TOLD"
  [ -n "$REFUSES" ] && exit 1
  touch "$CUDA_MPS_PIPE_DIRECTORY/control"
  exit 0
fi
read_question
echo "$question ${CUDA_MPS_PIPE_DIRECTORY-none}" >> "$TOLD"
[ -e "${CUDA_MPS_PIPE_DIRECTORY:-/nowhere}/control" ]
"""


class Pretended:
    """A process that runs until it is told to end."""

    def __init__(self, task, path, environment, threads):
        self.environment, self.code = environment, None

    def poll(self):
        return self.code


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """Two GPUs and a control program that writes down what it is asked."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(engines, "CellProcess", Pretended)
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(CONTROL)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "told"


TASK = Task(TrainConfig())


def device(cell):
    return cell.environment["CUDA_VISIBLE_DEVICES"]


def test_cells_go_to_the_device_that_has_the_fewest(gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    with LocalEngine(2) as engine:
        assert engine.slots == 4
        handles = [engine.start(TASK, tmp_path) for _ in range(4)]
        assert [device(handle) for handle in handles] == ["3", "GPU-5", "3", "GPU-5"]
        for handle in handles:
            assert handle.environment["CUDA_MPS_PIPE_DIRECTORY"] in gpus.read_text()
        handles[1].code = 0
        assert device(engine.start(TASK, tmp_path)) == "GPU-5"


def test_the_daemon_is_started_once_and_stopped_again(gpus):
    with LocalEngine(2):
        pass
    asked = [line.split() for line in gpus.read_text().splitlines()]
    assert [words[0] for words in asked] == ["get_server_list", "start", "get_server_list", "quit"]
    assert asked[0][1] == "none"
    assert len({words[1] for words in asked[1:]}) == 1
    assert asked[1][2] == "all"
    assert not os.path.exists(asked[1][1])


def test_no_daemon_where_it_would_bring_nothing(gpus):
    for engine in (LocalEngine(1), LocalEngine(2, "cpu")):
        with engine:
            pass
    assert not gpus.exists()


def test_a_daemon_that_runs_already_is_used_and_left_alone(gpus, tmp_path, monkeypatch):
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with LocalEngine(2) as engine:
        environment = engine.start(TASK, tmp_path).environment
        assert environment["CUDA_MPS_PIPE_DIRECTORY"] == str(tmp_path)
    assert gpus.read_text().split()[::2] == ["get_server_list"]


def test_a_daemon_that_can_not_be_started_is_done_without(gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSES", "yes")
    with LocalEngine(2) as engine:
        environment = engine.start(TASK, tmp_path).environment
        assert "CUDA_MPS_PIPE_DIRECTORY" not in environment


def test_what_a_process_loads_before_it_trains():
    """On a cluster no torch; and ahead of a fork nothing that has looked at the devices.

    A process that has looked at its devices can't be forked into one that uses them.
    """
    code = """if True:
        import importlib
        import sys
        import torchlace.experiments.ray
        from torchlace.experiments.process import LOADED

        assert "torch" not in sys.modules
        import torch

        def refuse(*arguments):
            raise AssertionError("CUDA was started")

        torch._C._cuda_getDeviceCount = torch._C._cuda_init = refuse
        for name in LOADED:
            importlib.import_module(name)
        """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_wrong_engines_are_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ValueError, match="unknown engine 'rai': did you mean 'ray'"):
        make_engine("rai")
    with pytest.raises(ValueError, match='there is no CUDA device here: use device="cpu"'):
        make_engine(device="cuda")
    with pytest.raises(ValueError, match="jobs must be at least 1, got 0"):
        make_engine(jobs=0)
    assert make_engine(jobs=3).slots == 3
