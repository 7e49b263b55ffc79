"""Weights & Biases and MLflow for real, without a server."""

import dataclasses
import json

import pytest
from training.processes import metrics, torchlace
from training.stopping import Recorder, StopAfter, StoppedError

from torchlace.runs import Run
from torchlace.training import InterruptedRun, RunError, TrainConfig, train
from torchlace.training.loggers import Loggers, _WandB

SHORT = ("train", "--backbone", "small-cnn", "--head", "softmax", "--epochs", "2", "--run", "run")
CONFIG = TrainConfig(head="softmax", epochs=2, loggers=("mlflow",))


@pytest.fixture
def records(tmp_path, monkeypatch):
    """What MLflow knows, oldest first: status and epochs of every record."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "kept").as_uri())

    def read():
        client = mlflow.MlflowClient()
        found = client.search_runs(["0"], order_by=["attributes.start_time"])
        losses = [client.get_metric_history(each.info.run_id, "val_loss") for each in found]
        return [
            (each.info.status, {told.step: told.value for told in loss})
            for each, loss in zip(found, losses, strict=True)
        ]

    yield read
    mlflow.set_tracking_uri(before)


def losses(run):
    return {int(row["epoch"]): pytest.approx(float(row["val_loss"])) for row in metrics(run)}


def test_mlflow_goes_on_in_the_same_record_until_the_run_is_overwritten(records, tmp_path):
    with pytest.raises(StoppedError):
        train(CONFIG, tmp_path / "run", reporter=StopAfter(1))
    assert records() == [("FAILED", losses(tmp_path / "run"))]
    train(CONFIG, tmp_path / "run")
    assert records() == [("FINISHED", losses(tmp_path / "run"))]
    (tmp_path / "run").rename(tmp_path / "moved")
    train(dataclasses.replace(CONFIG, seed=1), tmp_path / "moved", overwrite=True)
    assert [status for status, _ in records()] == ["FINISHED"] * 2
    assert records()[1][1] == losses(tmp_path / "moved")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, InterruptedRun])
def test_a_run_that_is_stopped_says_so(stop, records, tmp_path):
    class Stop(Recorder):
        def epoch(self, row, epochs):
            raise stop

    with pytest.raises(stop):
        train(CONFIG, tmp_path / "run", reporter=Stop())
    assert [status for status, _ in records()] == ["KILLED"]


def test_a_logger_asked_for_later_is_told_everything(records, tmp_path):
    with pytest.raises(StoppedError):
        train(dataclasses.replace(CONFIG, loggers=()), tmp_path / "run", reporter=StopAfter(1))
    train(CONFIG, tmp_path / "run")
    assert records() == [("FINISHED", losses(tmp_path / "run"))]


def test_an_outage_is_told_once_and_made_good(records, tmp_path, monkeypatch):
    import mlflow

    honest, calls = mlflow.log_metrics, []

    def flaky(*arguments, **options):
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("no route\nto host")
        honest(*arguments, **options)

    monkeypatch.setattr(mlflow, "log_metrics", flaky)
    told = Recorder()
    train(dataclasses.replace(CONFIG, epochs=3), tmp_path / "run", reporter=told)
    assert records() == [("FINISHED", losses(tmp_path / "run"))]
    assert told.messages == [
        "warning: MLflow fails (ConnectionError: no route); training goes on, and what it misses "
        "is sent when it answers again"
    ]


def test_an_outage_at_the_end_is_no_failure(records, tmp_path, monkeypatch):
    import mlflow

    def fail(*arguments, **options):
        raise ConnectionError("no route")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow, "end_run", fail)
        patch.setattr(mlflow, "log_metrics", fail)
        told = Recorder()
        assert train(CONFIG, tmp_path / "run", reporter=told)["epochs"] == 2
    mlflow.end_run()
    assert len(told.messages) == 1


def test_mlflow_without_a_store_is_an_error_in_a_line(tmp_path):
    pytest.importorskip("mlflow")
    place = {"MLFLOW_TRACKING_URI": "nowhere://at.all"}
    done = torchlace(*SHORT, "--log", "mlflow", folder=tmp_path, environment=place)
    assert done.code == 1
    assert "MLflow can't be used" in done.err
    assert "Traceback" not in done.err


def test_wandb_keeps_an_offline_record(tmp_path):
    pytest.importorskip("wandb")
    place = {"WANDB_MODE": "offline"}
    done = torchlace(*SHORT, "--log", "wandb", folder=tmp_path, environment=place)
    assert done.code == 0, done.err
    (record,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    content = record.read_bytes()
    assert b"val_loss" in content
    assert b"softmax" in content
    identity = json.loads((tmp_path / "run" / "records.json").read_text())["wandb"]
    assert record.name == f"run-{identity}.wandb"


def test_wandb_is_given_the_identity_and_the_status(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    begun, ended = [], []

    class Record:
        def log(self, values, step):
            pass

        def finish(self, exit_code):
            ended.append(exit_code)

    def init(**options):
        begun.append(options["id"])
        return Record()

    monkeypatch.setattr(wandb, "init", init)
    config, run = dataclasses.replace(CONFIG, loggers=("wandb",)), Run(tmp_path / "run")
    for stop in (StoppedError, KeyboardInterrupt):
        with pytest.raises(stop):
            train(config, run.path, reporter=Ends(stop))
    train(config, run.path)
    assert ended == [1, 255, 0]
    train(config, run.path, overwrite=True)
    first, second, third, other = begun
    assert first == second == third != other
    assert _WandB(run, config).goes_on


class Ends(Recorder):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def epoch(self, row, epochs):
        raise self.error


def test_a_logger_that_can_not_begin_ends_those_before_it(tmp_path, monkeypatch):
    wandb, mlflow = pytest.importorskip("wandb"), pytest.importorskip("mlflow")
    ended = []

    class Record:
        def finish(self, exit_code):
            ended.append(exit_code)

    def refuse(**options):
        raise mlflow.MlflowException("no store")

    monkeypatch.setattr(wandb, "init", lambda **options: Record())
    monkeypatch.setattr(mlflow, "start_run", refuse)
    config = dataclasses.replace(CONFIG, loggers=("wandb", "mlflow"))
    with pytest.raises(RunError, match="no store"):
        Loggers(Run(tmp_path), config, [], Recorder(), enabled=True)
    assert ended == [1]


def test_wandb_without_a_key_is_an_error_in_a_line(tmp_path):
    pytest.importorskip("wandb")
    place = {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    place["WANDB_API_KEY"] = ""
    done = torchlace(*SHORT, "--log", "wandb", folder=tmp_path, environment=place)
    assert done.code == 1
    assert "WANDB_MODE=offline" in done.err
    assert "Traceback" not in done.err
