"""The rules of a grid, with an engine that only pretends, and with real processes."""

import json
import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from experiments.engines import Lines, Pretended, Watched
from experiments.grids import GRID

from torchlace.experiments import (
    State,
    collect_panels,
    collect_records,
    grid_status,
    load_experiment,
    make_table,
    run_grid,
    unique_tasks,
)
from torchlace.experiments.cells import Task, longest_first
from torchlace.experiments.engines import LocalEngine, require_layouts
from torchlace.runs import Lock
from torchlace.runs.files import CLAIM, LOCK
from torchlace.training import Run, TrainConfig


def tasks(count):
    return [Task(TrainConfig(backbone="small-cnn", epochs=2, seed=seed)) for seed in range(count)]


def states(wanted, folder):
    return list(grid_status(wanted, folder).states.values())


def written(wanted, folder):
    return [Run(folder / task.name).result_path.stat().st_mtime_ns for task in wanted]


def test_finished_cells_are_left_alone_and_the_rest_runs(tmp_path):
    wanted, engine, lines = tasks(5), Pretended(), Lines()
    run_grid(wanted[:2], tmp_path, Pretended())
    before = written(wanted[:2], tmp_path)
    outcome = run_grid(wanted, tmp_path, engine, reporter=lines)
    assert engine.started == outcome.ran == [task.name for task in wanted[2:]]
    assert states(wanted, tmp_path) == [State.DONE] * 5
    assert before == written(wanted[:2], tmp_path)
    assert lines.told[-1].endswith("50.00 % in 2 s; 5 of 5 done")
    assert run_grid(wanted, tmp_path, Pretended()).ran == []


def test_failed_cells_are_reported_and_run_again_on_demand(tmp_path):
    wanted = tasks(3)
    outcome = run_grid(wanted, tmp_path, Pretended({1: 1, 2: -9}))
    assert list(outcome.failed) == [wanted[1].name, wanted[2].name]
    assert outcome.failed[wanted[1].name] == "its process ended with exit code 1"
    assert outcome.failed[wanted[2].name].startswith("its process ended with signal SIGKILL (out")
    assert states(wanted, tmp_path) == [State.DONE, State.FAILED, State.FAILED]
    again = Pretended()
    assert len(run_grid(wanted, tmp_path, again).failed) == 2
    assert again.started == []
    Run(tmp_path / wanted[2].name).checkpoint_path.touch()
    lines = Lines()
    retried = run_grid(wanted, tmp_path, again, retry_failed=True, reporter=lines)
    assert (len(retried.ran), retried.failed) == (2, {})
    assert {f"{wanted[1].name} starts", f"{wanted[2].name} goes on"} <= set(lines.told)
    assert states(wanted, tmp_path) == [State.DONE] * 3


def test_the_first_ctrl_c_waits_for_the_epoch_and_the_second_ends_all(tmp_path):
    looks = iter(range(1000))

    def ask():
        if next(looks) in (4, 20):
            os.kill(os.getpid(), signal.SIGINT)

    before, lines = signal.getsignal(signal.SIGINT), Lines()
    engine = Pretended(looks=100, on_look=ask)
    outcome = run_grid(tasks(4), tmp_path, engine, reporter=lines)
    assert outcome.interrupted
    assert len(engine.started) == 2
    assert [handle.asked for handle in engine.handles] == [["interrupt", "kill"]] * 2
    assert "stopping: 2 runs finish their epoch; once more ends them now" in lines.told
    assert outcome.failed == {}
    assert signal.getsignal(signal.SIGINT) is before
    assert set(states(tasks(4), tmp_path)) == {State.MISSING}


def test_clusters_stop_a_grid_by_sigterm(tmp_path):
    engine = Pretended(looks=0, on_look=lambda: os.kill(os.getpid(), signal.SIGTERM))
    outcome = run_grid(tasks(9), tmp_path, engine)
    assert outcome.interrupted
    assert len(engine.started) == 2


def test_what_another_grid_has_claimed_is_left_to_it(tmp_path):
    wanted = tasks(3)
    claim = Lock(tmp_path / wanted[1].name, CLAIM)
    assert claim.acquire()
    assert states(wanted, tmp_path)[1] is State.RUNNING
    outcome = run_grid(wanted, tmp_path, Pretended())
    assert outcome.elsewhere == [wanted[1].name]
    assert outcome.ran == [wanted[0].name, wanted[2].name]
    claim.release()
    assert states(wanted, tmp_path)[1] is State.MISSING
    # A process that outlived its grid has locked its directory; its cell can be claimed.
    lock = Lock(tmp_path / wanted[1].name, LOCK)
    assert lock.acquire()
    assert states(wanted, tmp_path)[1] is State.RUNNING
    assert run_grid(wanted, tmp_path, Pretended()).ran == [wanted[1].name]
    lock.release()


def test_what_another_grid_leaves_behind_is_taken_up(tmp_path):
    """One is finished by it, one fails there, one is left when it ends, one goes on there."""
    wanted = tasks(5)
    claims = [Lock(tmp_path / task.name, CLAIM) for task in wanted[:4]]
    assert all(claim.acquire() for claim in claims)
    looks = iter(range(1000))

    def other():
        if next(looks) == 1:
            done = Run(tmp_path / wanted[0].name)
            done.start(wanted[0].config, {})
            done.finish({"test_accuracy": 1.0, "seconds": 1.0})
            (tmp_path / wanted[1].name / "failed.txt").write_text("RunError: nan\n")
            for claim in claims[:3]:
                claim.release()

    outcome = run_grid(wanted, tmp_path, Pretended(on_look=other))
    assert outcome.ran == [wanted[4].name, wanted[2].name]
    assert outcome.failed == {wanted[1].name: "RunError: nan"}
    assert outcome.elsewhere == [wanted[3].name]
    claims[3].release()


def test_the_time_left_goes_by_the_finished_cells_that_are_most_alike(tmp_path):
    wanted = [
        Task(TrainConfig(backbone="small-cnn", head=head, seed=seed, patience=2))
        for head in ("lace", "softmax")
        for seed in range(3)
    ]
    assert grid_status(wanted, tmp_path).seconds is None
    for task, seconds in ((wanted[0], 10.0), (wanted[1], 20.0), (wanted[3], 3.0)):
        run = Run(tmp_path / task.name)
        run.path.mkdir()
        run.start(task.config, {})
        run.finish({"test_accuracy": 1.0, "seconds": seconds})
    cut = Run(tmp_path / wanted[2].name)
    cut.path.mkdir()
    cut.start(wanted[2].config, {})
    cut.write_metrics([{"epoch": 1, "val_loss": 2.0, "seconds": 4.0}])
    status = grid_status(wanted, tmp_path)
    assert [status.count(state) for state in State] == [3, 0, 0, 1, 2]
    assert status.seconds == pytest.approx((15 - 4) + 2 * 3)


@pytest.mark.parametrize(
    ("losses", "epochs", "left"),
    [
        ([3.0, 2.0, 1.0], 300, 10 * 7),  # the best is the last: its patience is whole
        ([3.0, 1.0, 2.0, 2.0], 300, 8 * 7),
        ([3.0, 2.0, 1.0], 5, 2 * 7),  # no more epochs than it may have
    ],
)
def test_a_run_that_outlasts_the_others_is_not_expected_to_end_at_once(
    tmp_path, losses, epochs, left
):
    first, long = (Task(TrainConfig(seed=seed, epochs=epochs)) for seed in range(2))
    for task in (first, long):
        (tmp_path / task.name).mkdir()
        Run(tmp_path / task.name).start(task.config, {})
    Run(tmp_path / first.name).finish({"test_accuracy": 1.0, "seconds": 3.0})
    rows = [
        {"epoch": epoch, "val_loss": loss, "seconds": 7.0 * epoch}
        for epoch, loss in enumerate(losses, start=1)
    ]
    Run(tmp_path / long.name).write_metrics(rows)
    assert grid_status([first, long], tmp_path).seconds == pytest.approx(left)


def test_long_cells_are_started_first():
    """As far as others like them tell: same images and head, same images, same head, any."""
    tasks = [
        Task(TrainConfig(data=data, head=head, seed=5))
        for data in ("cifar10", "svhn")
        for head in ("softmax", "center", "lace")
    ]
    took = {
        "cifar10-resnet18-softmax-native-s0": 100.0,
        "cifar10-resnet18-lace-native-s0": 150.0,
        "cifar10-resnet18-lace-native-s1": 170.0,
        "fashion_mnist-resnet18-lace-native-s0": 900.0,
        "fashion_mnist-resnet50-center-native-s0": 2000.0,
    }
    order = [(task.config.data, task.config.head) for task in longest_first(tasks, took)]
    assert order == [
        ("svhn", "center"),  # any: 664
        ("svhn", "lace"),  # same head: 407
        ("cifar10", "lace"),  # 160
        ("cifar10", "center"),  # same images: 140
        ("cifar10", "softmax"),
        ("svhn", "softmax"),
    ]
    assert longest_first(tasks, {}) == tasks


def test_real_processes_fail_are_killed_and_recover(tmp_path):
    """One broken set of images, one process killed, one cell that is well."""
    pack = tmp_path / "images.npz"
    pack.write_bytes(b"no pack")
    (tmp_path / "mine.yaml").write_text(
        GRID.replace("head: softmax}", f"head: softmax, data: {pack}}}").replace(
            "seeds: 2", "seeds: 1"
        )
    )
    wanted = unique_tasks(load_experiment(tmp_path / "mine.yaml").cells())
    engine = Watched(2, "cpu")

    def kill():
        while len(engine.started) < 2:
            time.sleep(0.01)
        engine.started[1].kill()

    threading.Thread(target=kill, daemon=True).start()
    outcome = run_grid(wanted, tmp_path / "runs", engine)
    broken, killed = (outcome.failed[task.name] for task in wanted)
    assert broken.startswith("DataError: ")
    assert "not a readable .npz" in broken
    assert killed.startswith("its process ended with signal SIGKILL")
    log = (tmp_path / "runs" / wanted[0].name / "log.txt").read_text()
    assert "Traceback" in log

    random = np.random.default_rng(0)
    images = random.integers(0, 255, (40, 8, 8), dtype=np.uint8)
    np.savez(pack, x_train=images, y_train=np.arange(40) % 2)
    again = run_grid(wanted, tmp_path / "runs", LocalEngine(2, "cpu"), retry_failed=True)
    assert (sorted(again.ran), again.failed) == (sorted(task.name for task in wanted), {})
    for task in wanted:
        files = {path.name for path in (tmp_path / "runs" / task.name).iterdir()}
        assert {"config.yaml", "metrics.csv", "result.json", "best.safetensors"} <= files
        assert not {"last.ckpt", "failed.txt"} & files


def test_runs_are_examined_and_drawn_where_a_figure_needs_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        GRID.replace("seeds: 2", "seeds: 1\nembeddings: [raw-pca-2d, whitened-pca-2d]")
        .replace("baseline: softmax\n", "")
        .replace("head: softmax}", "head: lace-published}")
        .replace("label: Accuracy", 'score: "clusters.{space}.silhouette"')
    )
    experiment = load_experiment(tmp_path / "mine.yaml")
    wanted = unique_tasks(experiment.cells())
    plain = [Task(task.config) for task in wanted]
    assert run_grid(plain, tmp_path, LocalEngine(2, "cpu")).failed == {}
    # Trained and finished, but not examined yet.
    assert states(plain, tmp_path) == [State.DONE] * 2
    assert states(wanted, tmp_path) == [State.CUT] * 2
    before = written(wanted, tmp_path)
    assert run_grid(wanted, tmp_path, LocalEngine(2, "cpu")).failed == {}
    assert before == written(wanted, tmp_path)

    found = collect_records(wanted, "mine", tmp_path)
    for task in wanted:
        scores = json.loads((tmp_path / task.name / "evaluation.json").read_text())
        assert found[task.name].line["clusters"] == scores["clusters"]
        entry = make_table(experiment, found).column("accuracy")[wanted.index(task)]
        assert entry.mean == scores["clusters"]["raw_sphere"]["silhouette"]
    shown = collect_panels(experiment, found)
    assert list(shown.panels) == [
        *("Softmax, before whitening", "Softmax, after whitening"),
        *("LACE, before whitening", "LACE, after whitening"),
    ]
    assert len(shown.labels) == 359
    for points, signatures in shown.panels.values():
        assert points.shape == (359, 2)
        assert signatures.shape == (10, 2)
        assert np.isfinite(points.astype(float)).all()
    with pytest.raises(ValueError, match="there is no embedding of mine to draw: run it first"):
        collect_panels(experiment, {})


def test_a_missing_package_is_noticed_before_anything_is_trained(monkeypatch):
    wanted = [Task(TrainConfig(), embeddings=("raw-pca-2d", "raw-tsne-3d"))]
    require_layouts(wanted)
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(ImportError, match="pip install"):
        require_layouts(wanted)


@pytest.mark.parametrize(("method", "module"), [("tsne", "openTSNE"), ("umap", "umap")])
def test_a_package_is_looked_for_without_its_import(method, module, tmp_path, monkeypatch):
    (tmp_path / f"{module}.py").write_text("raise AssertionError('it takes long')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    require_layouts([Task(TrainConfig(), embeddings=(f"raw-{method}-3d",))])
    assert module not in sys.modules
